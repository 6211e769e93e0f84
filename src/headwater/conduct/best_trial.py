"""Which trial is the best of those that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headwater.trials import INFEASIBLE, Objective, Status, TrialRecord


class BestTrial:
    """Compares trials by the last value of the metric, as a result does."""

    def __init__(self, objective: Objective, known: Sequence[TrialRecord] = (), number: int | None = None) -> None:
        self._objective = objective
        self._last = {
            record.number: math.nan if record.status is Status.FAILED else record.value(objective.metric)
            for record in known
        }
        self._number = number

    @property
    def number(self) -> int | None:
        """Which trial it is."""
        return self._number

    def see(self, number: int, value: float) -> None:
        """Take in what a trial reported last; NaN for one that has failed."""
        self._last[number] = value

    def update(self, ended: Mapping[int, float]) -> int | None:
        """Return the best of trials that just ended, if it is the best so far."""
        self._last |= ended
        numbers = [number for number in ended if self._score(number) < INFEASIBLE]
        best = min(numbers, key=lambda number: (self._score(number), number), default=None)
        return best if best is not None and (best == self._number or self.replace(best)) else None

    def replace(self, number: int) -> bool:
        """Make a trial the best if its last value is better than that of the one that is; tell whether it is now."""
        if number == self._number or not self._score(number) < self._score(self._number):
            return False
        self._number = number
        return True

    def _score(self, number: int | None) -> float:
        return self._objective.score(math.nan if number is None else self._last.get(number, math.nan))
