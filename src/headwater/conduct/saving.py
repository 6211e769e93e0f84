"""Which states of trials are saved while a study runs, and whose weights are kept as the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwater.conduct.best_trial import BestTrial
from headwater.store import StateFiles
from headwater.trials import Objective, Report, Saved, Status, TrialRecord

SAVING_SHARE = 0.03
"""How much of the time saving may take, where nobody has said how often."""


class SavingRule:
    """How often trials that go on are saved: after so many epochs, or as often as takes next to no time."""

    def __init__(self, every: int | str | None, clock: Callable[[], float]) -> None:
        self._every = every
        self._clock = clock
        self._begin = clock()
        self._seconds = 0.0

    def is_due(self, epoch: int) -> bool:
        """Tell whether trials that go on should be saved after this epoch."""
        if isinstance(self._every, int):
            return epoch % self._every == 0
        return self._every is not None and self._seconds <= SAVING_SHARE * (self._clock() - self._begin)

    def count(self, seconds: float) -> None:
        """Take in how long saving took."""
        self._seconds += seconds


class TrialStates:
    """Says which trials are saved and kept, and knows which states there are."""

    def __init__(
        self, files: StateFiles, rule: SavingRule, objective: Objective, known: Sequence[TrialRecord] = ()
    ) -> None:
        self.files = files
        self.rule = rule
        self._objective = objective
        self._best = BestTrial(objective, known, files.kept_number)
        for record in known:
            if record.status.is_final:
                self._clear_up(record)

    def see(self, number: int, value: float) -> None:
        """Take in what a trial reported last."""
        self._best.see(number, value)

    def choose_saved(self, reports: Sequence[Report], statuses: Mapping[int, Status], *, is_due: bool) -> list[int]:
        """Return which of the trials that reported are to be saved: those that pause, and those that go on if due."""
        wanted = (Status.PAUSED, Status.RUNNING) if is_due else (Status.PAUSED,)
        return [one.number for one in reports if statuses.get(one.number, Status.RUNNING) in wanted]

    def choose_kept(self, ended: Sequence[Report]) -> int | None:
        """Return the best of the trials that end with these reports, if it is the best so far."""
        return self._best.update({report.number: report.metrics[self._objective.metric] for report in ended})

    def leave_out_overtaken(self, event: Saved) -> Saved:
        """Return what was written but for weights that are no longer the best, where the better ones are there."""
        best = self._best.number
        if event.kept is None or event.kept[0] == best or self.files.kept_number != best:
            return event
        self.files.remove_kept(*event.kept)
        return replace(event, kept=None)

    def take_saved(self, event: Saved) -> None:
        """Take in what was written, now that it is recorded."""
        self.rule.count(event.seconds)
        self.files.add(event.epochs)
        if event.kept is not None:
            self.files.set_kept(*event.kept)

    def keep_unfinished(self) -> None:
        """Where no trial came to its end, keep the weights of the best that was under way, as they are now."""
        kept = self.files.kept_number
        if kept is None or kept in self.files:
            for number in sorted(self.files, key=lambda number: number != kept):
                self._keep_saved(number)

    def fail(self, number: int) -> None:
        """Take in that a trial has failed: it cannot be the best."""
        self._best.see(number, math.nan)

    def _clear_up(self, record: TrialRecord) -> None:
        """Drop what a run that broke off has left of a trial that had ended: an older state is not what it came to."""
        if self.files.has(record.number, record.epochs):
            self.drop(record.number)
        else:
            self.files.drop(record.number)

    def drop(self, number: int) -> None:
        """Forget the state of a trial that will never train again, unless it is the best: then it is kept apart."""
        if number in self.files and number != self.files.kept_number:
            self._keep_saved(number)
        self.files.drop(number)

    def _keep_saved(self, number: int) -> None:
        """Keep a trial's saved state as the best if it is that."""
        if number == self.files.kept_number or self._best.replace(number):
            self.files.keep_saved(number)
