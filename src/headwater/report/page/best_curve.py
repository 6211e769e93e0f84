"""The best value at every moment of a study, by the rule that ranks trials: the last value of each counts."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class BestStep(NamedTuple):
    """From this moment on, this trial was the best."""

    time: float
    num_epochs: int
    """How many epochs all trials had trained by then."""
    number: int
    value: float


@dataclass(slots=True)
class BestCurve:
    """Hears reports in the order of their times, and knows which trial is the best."""

    mode: str
    steps: list[BestStep] = field(default_factory=list)
    num_epochs: int = 0
    _current: dict[int, float] = field(default_factory=dict)
    _heap: list[tuple[float, int]] = field(default_factory=list)

    def hear(self, time: float, number: int, value: float) -> None:
        """Take in what a trial reported for an epoch."""
        self.num_epochs += 1
        heap = self._heap
        if math.isfinite(value):
            score = -value if self.mode == "max" else value
            self._current[number] = score
            heapq.heappush(heap, (score, number))
            if heap[0][1] != number and self.steps:  # the best is who it was
                return
        else:
            self._current.pop(number, None)
        self._settle(time)

    def drop(self, time: float, number: int) -> None:
        """Leave out a trial that has failed."""
        if self._current.pop(number, None) is not None:
            self._settle(time)

    @property
    def best(self) -> tuple[int, float] | None:
        """The best trial and its value; None where none has a finite one."""
        if not self._heap:
            return None
        score, number = self._heap[0]
        return number, -score if self.mode == "max" else score

    def sample(self, num_values: int) -> list[float]:
        """Return the best value at so many moments, evenly spread from the first report of all to the last step."""
        if not self.steps:
            return []
        first, last = self.steps[0].time, self.steps[-1].time
        times = [step.time for step in self.steps]
        moments = [first + (last - first) * place / (num_values - 1) for place in range(num_values)]
        return [self.steps[bisect_right(times, moment) - 1].value for moment in moments[:-1]] + [self.steps[-1].value]

    def _settle(self, time: float) -> None:
        while self._heap and self._current.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        found = self.best
        if found is not None and (not self.steps or (self.steps[-1].number, self.steps[-1].value) != found):
            self.steps.append(BestStep(time, self.num_epochs, *found))


def follow_best(mode: str, reports: Sequence[tuple[float, int, float]], failed: Sequence[int] = ()) -> BestCurve:
    """Return the curve of all reports, each a time, a trial and a value."""
    curve = BestCurve(mode)
    for time, number, value in sorted(reports, key=lambda report: report[0]):
        curve.hear(time, number, value)
    for number in failed:
        curve.drop(curve.steps[-1].time if curve.steps else 0.0, number)
    return curve
