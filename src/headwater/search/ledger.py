"""What every trial has reached, what is wanted of it next, and what is under way."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from headwater.search.problem import Problem, ResultOrder
from headwater.trials import Objective, Report, Segment, Status, TrialRecord

INFEASIBLE = math.inf
"""The score of a trial that failed, or whose metric is no finite number: worse than any other."""


class Ledger:
    """Keeps results until a schedule asks for them, so that the order in which they arrive does not matter.

    A score is the metric with the sign that makes smaller better. It is a function of the reports alone, so a ledger
    that is built from the record answers like the one that saw the reports come in.

    Where the order of arrival counts, what the record holds is hidden at first: `replay` shows it, one end of a segment
    after the other, so that a schedule can go on after each as it did then.
    """

    def __init__(self, problem: Problem) -> None:
        self._metric = problem.metric
        self._sign = -1.0 if problem.mode == "max" else 1.0
        self._also = [Objective(metric, mode) for metric, mode in problem.also.items()]
        self._others: dict[int, tuple[float, ...]] = {}
        self._constraints = problem.constraints
        self._violations: dict[int, tuple[float, ...]] = {}
        self._curves: dict[int, dict[int, float]] = {}
        self._over: dict[int, Status] = {}
        self._waiting: deque[Segment] = deque()
        self._under_way: dict[int, Segment] = {}
        self._dropped: list[int] = []
        self._arrived: deque[int] = deque()
        self._recorded = problem.arrivals
        self._hidden: dict[int, TrialRecord] = {}
        self.is_by_arrival = problem.order is ResultOrder.ARRIVAL
        if self.is_by_arrival:
            self._hidden = {record.number: record for record in problem.known}
        else:
            for record in problem.known:
                self._show(record, record.epochs, record.status)

    def replay(self) -> Iterator[None]:
        """Show what the record holds in the order in which it came, one end of a segment at a time."""
        for arrival in self._recorded:
            record = self._hidden.get(arrival.number)
            is_retried = arrival.status is Status.FAILED and record is not None and record.status is not Status.FAILED
            if record is not None and not is_retried:
                self._show(record, arrival.epoch, arrival.status)
                yield
        for record in self._hidden.values():  # what is under way has reported since its last segment ended
            self._show(record, record.epochs, record.status)
        self._hidden = {}
        yield

    def _show(self, record: TrialRecord, epoch: int, status: Status) -> None:
        """Take in what the record holds of a trial up to this epoch, where it stood so."""
        for report in record.history:
            if report.epoch <= epoch:
                self.note(report)
        if status.is_final:
            self._over[record.number] = status
        self._arrive(record.number)

    def _arrive(self, number: int) -> None:
        if self.is_by_arrival:
            self._arrived.append(number)

    def want(self, segment: Segment) -> None:
        """Have the segment proposed, unless the trial has reached its end already."""
        if self.score(segment.number, segment.until) is None:
            self._waiting.append(segment)
        else:
            self._arrive(segment.number)

    def take(self, count: int) -> list[Segment]:
        """Hand out at most `count` of the segments that are wanted, in the order in which they were asked for."""
        segments: list[Segment] = []
        while self._waiting and len(segments) < count:
            segment = self._waiting.popleft()
            if self.score(segment.number, segment.until) is None:  # else it had ended when this was built
                segments.append(segment)
        self._under_way |= {segment.number: segment for segment in segments}
        return segments

    def take_arrived(self) -> int | None:
        """Hand out the trial whose segment ended first of those not handed out yet; None when there is none."""
        return self._arrived.popleft() if self._arrived else None

    def note(self, report: Report) -> float:
        """Keep what a trial reported, and return the score."""
        value = report.metrics.get(self._metric, math.nan)
        score = self._sign * value if math.isfinite(value) else INFEASIBLE
        self._curves.setdefault(report.number, {})[report.epoch] = score
        if self._also:
            values = [(one, report.metrics.get(one.metric, math.nan)) for one in self._also]
            self._others[report.number] = tuple(one.score(value) for one, value in values)
        if self._constraints:
            self._violations[report.number] = tuple(one.violation(report.metrics) for one in self._constraints)
        return score

    def end(self, number: int, status: Status) -> None:
        """Keep how a segment ended; one that ended before its time, but can go on, is wanted again."""
        segment = self._under_way.pop(number, None)
        self._arrive(number)
        if status.is_final:
            self._over[number] = status
        elif segment is not None:
            self.want(segment)

    def drop(self, number: int) -> None:
        """Note that a trial is never wanted again, unless it is over already."""
        if number not in self._over:
            self._dropped.append(number)

    def take_dropped(self) -> Sequence[int]:
        """Hand out the trials dropped since the last call, but for those that the record knows to be over."""
        dropped, self._dropped = self._dropped, []
        return [number for number in dropped if number not in self._over]

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

    def others(self, number: int) -> tuple[float, ...]:
        """Return the last scores of a trial in the further metrics that count."""
        return self._others.get(number, (INFEASIBLE,) * len(self._also))

    def violations(self, number: int) -> tuple[float, ...]:
        """Return by how much the last report of a trial breaks each constraint."""
        return self._violations.get(number, (INFEASIBLE,) * len(self._constraints))

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
