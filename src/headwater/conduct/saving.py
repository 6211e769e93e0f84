"""Which states of trials are saved while a study runs, and whose weights are kept as the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwater.store import StateFiles
from headwater.trials import INFEASIBLE, Objective, Report, Saved, Status, TrialRecord

SAVING_SHARE = 0.03
"""How much of the time saving may take, where nobody has said how often."""


class TrialStates:
    """Says which trials are saved and kept, and knows which states there are.

    Trials that go on are saved after so many epochs, or as often as takes next to no time. Kept are the weights of the
    best of those that have ended, compared by their last reports, as a result does.
    """

    def __init__(
        self,
        files: StateFiles,
        objective: Objective,
        known: Sequence[TrialRecord] = (),
        *,
        every: int | str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.files = files
        self._objective = objective
        self._best = files.kept_number
        self._last: dict[int, Mapping[str, float]] = {
            record.number: {} if record.status is Status.FAILED else record.metrics for record in known
        }
        """What each trial reported last; nothing of those that have failed."""
        self._every = every
        self._clock = clock
        self._begin_s = clock()
        self._saving_s = 0.0
        for record in known:
            if record.status.is_final:
                self._clear_up(record)

    def is_due(self, epoch: int) -> bool:
        """Tell whether trials that go on should be saved after this epoch."""
        if isinstance(self._every, int):
            return epoch % self._every == 0
        return self._every is not None and self._saving_s <= SAVING_SHARE * (self._clock() - self._begin_s)

    def see(self, reports: Sequence[Report]) -> None:
        """Take in what trials reported last."""
        for report in reports:
            self._last[report.number] = report.metrics

    def choose_saved(self, reports: Sequence[Report], leaving: Mapping[int, Status], *, is_due: bool) -> list[int]:
        """Return which of the trials that reported are to be saved: those that pause, and those that go on if due."""
        if not is_due:
            return [number for number, status in leaving.items() if status is Status.PAUSED]
        return [one.number for one in reports if leaving.get(one.number, Status.PAUSED) is Status.PAUSED]

    def choose_kept(self, ended: Sequence[Report]) -> int | None:
        """Return the best of the trials that end with these reports, if it is the best so far."""
        self._last |= {report.number: report.metrics for report in ended}
        return self.choose_ended([report.number for report in ended])

    def choose_ended(self, numbers: Sequence[int]) -> int | None:
        """Return the best of trials that have ended with what they have reported last, if it is the best so far."""
        numbers = [number for number in numbers if self._merit(number)[1] < INFEASIBLE]
        best = min(numbers, key=lambda number: (self._merit(number), number), default=None)
        return best if best is not None and self._is_best(best) else None

    def leave_out_overtaken(self, event: Saved) -> Saved:
        """Return what was written but for weights that are no longer the best, where the better ones are there."""
        if not event.kept or self._best in event.kept or self.files.kept_number != self._best:
            return event
        for number, epoch in event.kept.items():
            self.files.remove_kept(number, epoch)
        return replace(event, kept={})

    def take_saved(self, event: Saved) -> None:
        """Take in what was written, now that it is recorded."""
        self._saving_s += event.seconds
        self.files.add(event.epochs)
        for number, epoch in event.kept.items():
            self.files.set_kept(number, epoch)

    def keep_unfinished(self) -> None:
        """Where no trial came to its end, keep the weights of the best that was under way, as they are now."""
        kept = self.files.kept_number
        if kept is None or kept in self.files:
            for number in sorted(self.files, key=lambda number: number != kept):
                self._keep_saved(number)

    def fail(self, number: int) -> None:
        """Take in that a trial has failed: it cannot be the best."""
        self._last[number] = {}

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
        if number == self.files.kept_number or (number != self._best and self._is_best(number)):
            self.files.keep_saved(number)

    def _is_best(self, number: int) -> bool:
        """Tell whether a trial is the best, which it is from now on if its last value is better."""
        if number != self._best and self._is_better(number, self._best):
            self._best = number
        return number == self._best

    def _is_better(self, number: int, other: int | None) -> bool:
        merit, others = self._merit(number), self._merit(other)
        return merit[1] < INFEASIBLE and (others[1] == INFEASIBLE or merit < others)

    def _merit(self, number: int | None) -> tuple[float, float]:
        return self._objective.merit({} if number is None else self._last.get(number, {}))
