"""What a running group has done and owes: steps, lanes that are left, and its share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.trials import Decision, Report, TrialGroup

if TYPE_CHECKING:
    from headwater.train.engines import LaneState


class Foreman(Protocol):
    """Who is told what groups do."""

    def hear_epochs(self, num_epochs: int) -> None:
        """Learn how many epochs a group's trials will train."""

    def hear_step(self, num_lanes: int) -> None:
        """Learn that a group took a step."""

    def hear_reports(
        self, shift: Shift, reports: Sequence[Report], capture: Callable[[int], LaneState | None]
    ) -> list[Decision]:
        """Take the reports of a group's lanes, and decide what becomes of each."""


class Shift:
    """One group at work. To its trial it is the control."""

    def __init__(self, group: TrialGroup, foreman: Foreman) -> None:
        self.key = group.lanes[0].number
        self.numbers = [lane.number for lane in group.lanes]
        """The trials that are still in the group."""
        self.num_steps = 0
        self._foreman = foreman

    def expect(self, num_epochs: int) -> None:
        """Pass on how many epochs there will be."""
        self._foreman.hear_epochs(num_epochs)

    def step(self, num_lanes: int) -> None:
        """Count a step."""
        self.num_steps += 1
        self._foreman.hear_step(num_lanes)

    def report(self, reports: Sequence[Report], capture: Callable[[int], LaneState | None]) -> list[Decision]:
        """Pass reports on, and note who goes."""
        decisions = self._foreman.hear_reports(self, reports, capture)
        self.numbers = [
            report.number for report, decision in zip(reports, decisions, strict=True) if decision is Decision.CONTINUE
        ]
        return decisions


class Bill:
    """Shares the time that a group runs among its lanes."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._spent: dict[int, float] = {}

    def open(self) -> None:
        """Start the clock for a group."""
        self._since = time.perf_counter()

    def share(self, numbers: Sequence[int]) -> None:
        """Charge these trials alike for the time since the last call."""
        now = time.perf_counter()
        for number in numbers:
            self._spent[number] = self._spent.get(number, 0.0) + (now - self._since) / len(numbers)
        self._since = now

    def collect(self, number: int) -> float:
        """Return what a trial owes, once."""
        return self._spent.pop(number, 0.0)
