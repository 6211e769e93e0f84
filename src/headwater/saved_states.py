"""Which states of trials are saved while a study runs, and whose weights are kept as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import StoreError
from headwater.report.podium import Podium
from headwater.shifts import Capture
from headwater.store import StudyInfo
from headwater.trials import Lane, Report, Status, TrialRecord

if TYPE_CHECKING:
    from headwater.train.state_store import StateStore


class SavedStates:
    """Saves trials that pause or go on, and keeps the weights of the best that has ended."""

    def __init__(self, state_store: StateStore, info: StudyInfo, known: Sequence[TrialRecord] = ()) -> None:
        self._state_store = state_store
        self._metric = info.metric
        self._podium = Podium(info.mode, info.metric, known, state_store.kept_number)

    def see(self, number: int, value: float) -> None:
        """Take in what a trial reported last."""
        self._podium.see(number, value)

    def save(
        self, reports: Sequence[Report], statuses: Mapping[int, Status], capture: Capture, *, is_due: bool
    ) -> None:
        """Save lanes' states: at a pause, and of those that go on where that is due."""
        with self._state_store.saving():
            for report in reports:
                status = statuses.get(report.number, Status.RUNNING)
                if status is Status.PAUSED or (status is Status.RUNNING and is_due):
                    state = capture(report.number)
                    if state is not None:
                        self._state_store.put(report.number, state)

    def keep_best(self, ended: Sequence[Report], capture: Capture) -> None:
        """Keep the weights of the best trial of those that end with these reports, if it is the best so far."""
        number = self._podium.climb({report.number: report.metrics[self._metric] for report in ended})
        if number is not None and (state := capture(number)) is not None:
            self._state_store.keep(number, state)

    def keep_unfinished(self) -> None:
        """Where no trial came to its end, keep the weights of the best that was under way, as they are now."""
        if (kept := self._state_store.kept_number) is None or kept in self._state_store:
            for number in sorted(self._state_store, key=lambda number: number != kept):
                self._keep_saved(number)

    def catch_up(self, lanes: Sequence[Lane], recorded: Mapping[int, int]) -> tuple[Lane, ...]:
        """Let lanes start where their saved states are, if all have one of the same epoch; else where they started.

        `recorded` has the last epoch of each trial that the record knows of.
        """
        try:
            epochs = {self._state_store.find_epoch(lane.number, recorded[lane.number]) for lane in lanes}
        except StoreError:
            return tuple(lanes)
        return tuple(replace(lane, start_epoch=max(epochs)) for lane in lanes) if len(epochs) == 1 else tuple(lanes)

    def fail(self, number: int) -> None:
        """Take in that a trial has failed: it cannot be the best."""
        self._podium.see(number, math.nan)

    def drop(self, number: int) -> None:
        """Forget the state of a trial that will never train again, unless it is the best: then it is kept apart."""
        if number in self._state_store and number != self._state_store.kept_number:
            self._keep_saved(number)
        self._state_store.drop(number)

    def _keep_saved(self, number: int) -> None:
        """Keep a trial's saved state as the best if it is that; one that is damaged cannot be."""
        if number == self._state_store.kept_number or self._podium.climb_last(number):
            try:
                state = self._state_store[number]
            except StoreError:
                return
            self._state_store.keep(number, state)
