"""Which states of trials are saved while a study runs, and whose weights are kept as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.report.podium import Podium
from headwater.shifts import Capture
from headwater.store import StudyInfo
from headwater.trials import Report, Status, TrialRecord

if TYPE_CHECKING:
    from headwater.train.shelf import Shelf


class SavedStates:
    """Saves trials that pause or go on, and keeps the weights of the best that has ended."""

    def __init__(self, shelf: Shelf, info: StudyInfo, known: Sequence[TrialRecord] = ()) -> None:
        self._shelf = shelf
        self._metric = info.metric
        self._podium = Podium(info.mode, info.metric, known, shelf.kept_number)

    def see(self, number: int, value: float) -> None:
        """Take in what a trial reported last."""
        self._podium.see(number, value)

    def save(
        self, reports: Sequence[Report], statuses: Mapping[int, Status], capture: Capture, *, is_due: bool
    ) -> None:
        """Save lanes' states: at a pause, and of those that go on where that is due."""
        with self._shelf.saving():
            for report in reports:
                status = statuses.get(report.number, Status.RUNNING)
                if status is Status.PAUSED or (status is Status.RUNNING and is_due):
                    state = capture(report.number)
                    if state is not None:
                        self._shelf.put(report.number, state)

    def keep_best(self, ended: Sequence[Report], capture: Capture) -> None:
        """Keep the weights of the best trial of those that end with these reports, if it is the best so far."""
        number = self._podium.climb({report.number: report.metrics[self._metric] for report in ended})
        if number is not None and (state := capture(number)) is not None:
            self._shelf.keep(number, state)

    def keep_unfinished(self) -> None:
        """Where no trial came to its end, keep the weights of the best that was under way, as they are now."""
        shelf = self._shelf
        if (kept := shelf.kept_number) is None or kept in shelf:
            for number in sorted(shelf, key=lambda number: number != kept):
                if number == kept or self._podium.climb_last(number):
                    shelf.keep(number, shelf[number])

    def fail(self, number: int) -> None:
        """Take in that a trial has failed: it cannot be the best."""
        self._podium.see(number, math.nan)

    def drop(self, number: int) -> None:
        """Forget the state of a trial that will never train again, unless it is the best: then it is kept apart."""
        if number in self._shelf and self._podium.climb_last(number):
            self._shelf.keep(number, self._shelf[number])
        self._shelf.drop(number)
