"""What every trial has reached, what is wanted of it next, and what is under way."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from headwater.search.problem import Problem
from headwater.trials import Report, Segment, Status

INFEASIBLE = math.inf
"""The score of a trial that failed, or whose metric is no finite number: worse than any other."""


class Ledger:
    """Keeps results until a schedule asks for them, so that the order in which they arrive does not matter.

    A score is the metric with the sign that makes smaller better. It is a function of the reports alone, so a ledger
    that is built from the record answers like the one that saw the reports come in.
    """

    def __init__(self, problem: Problem) -> None:
        self._metric = problem.metric
        self._sign = -1.0 if problem.mode == "max" else 1.0
        self._curves: dict[int, dict[int, float]] = {}
        self._over: dict[int, Status] = {}
        self._waiting: deque[Segment] = deque()
        self._under_way: dict[int, Segment] = {}
        self._dropped: list[int] = []
        for record in problem.known:
            for report in record.history:
                self.note(report)
            if record.status.is_final:
                self._over[record.number] = record.status

    def want(self, segment: Segment) -> None:
        """Have the segment proposed, unless the trial has reached its end already."""
        if self.score(segment.number, segment.until) is None:
            self._waiting.append(segment)

    def take(self, count: int) -> list[Segment]:
        """Hand out at most `count` of the segments that are wanted, in the order in which they were asked for."""
        segments = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._under_way |= {segment.number: segment for segment in segments}
        return segments

    def note(self, report: Report) -> float:
        """Keep what a trial reported, and return the score."""
        value = report.metrics.get(self._metric, math.nan)
        score = self._sign * value if math.isfinite(value) else INFEASIBLE
        self._curves.setdefault(report.number, {})[report.epoch] = score
        return score

    def end(self, number: int, status: Status) -> None:
        """Keep how a segment ended; one that ended before its time, but can go on, is wanted again."""
        segment = self._under_way.pop(number, None)
        if status.is_final:
            self._over[number] = status
        elif segment is not None:
            self.want(segment)

    def drop(self, number: int) -> None:
        """Note that a trial is never wanted again, unless it is over already."""
        if number not in self._over:
            self._dropped.append(number)

    def take_dropped(self) -> Sequence[int]:
        """Hand out the trials dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def score(self, number: int, until: int | None) -> float | None:
        """Return the score of a trial at the end of epoch `until`; None while that is not known.

        A trial whose training function came to its end before keeps its last score. One that failed or was stopped
        before is infeasible. Without `until`, the last score counts, also that of a stopped trial.
        """
        if number in self._under_way:
            return None
        curve = self._curves.get(number, {})
        if until in curve:
            return curve[until]
        status = self._over.get(number)
        if status is None:
            return None
        keeps_last = status is Status.COMPLETED or (status is Status.STOPPED and until is None)
        return next(reversed(curve.values()), INFEASIBLE) if keeps_last else INFEASIBLE

    def num_epochs(self, number: int) -> int:
        """Return how many epochs the trial has trained."""
        return next(reversed(self._curves.get(number, {})), 0)

    def has_completed(self, number: int, until: int | None = None) -> bool:
        """Whether the training function came to its end, at this epoch or before if there is one."""
        is_within = until is None or self.num_epochs(number) <= until
        return self._over.get(number) is Status.COMPLETED and is_within

    def can_go_on(self, number: int, until: int | None) -> bool:
        """Whether the trial could be promoted from this epoch: not if it was stopped there, as dropped trials are.

        It matters when a finished study is given more trials, and one that was dropped would now be good enough.
        """
        return self._over.get(number) is not Status.STOPPED or self.num_epochs(number) != until

    def curve(self, number: int) -> Sequence[float]:
        """Return the scores of a trial, epoch by epoch."""
        return tuple(self._curves.get(number, {}).values())
