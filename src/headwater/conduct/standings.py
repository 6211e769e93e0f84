"""How trials compare while a study runs: as they will in its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from headwater.store import StudyInfo
from headwater.trials import Objective, Report, Status, TrialRecord


class Standings:
    """Knows the best trial by the last value of the metric, as `Result.ranked` has it: without those that failed.

    Of a trial under several seeds that is the mean of the last epoch that all replicas have reported.
    """

    def __init__(self, info: StudyInfo, known: Sequence[TrialRecord] = ()) -> None:
        self._objective = Objective(info.metric, info.mode)
        self._num_seeds = info.num_seeds
        self._curves: dict[int, dict[int, float]] = {}
        self._values: dict[int, float] = {}
        self._failed: set[int] = set()
        self._best: int | None = None
        self._is_stale = False
        for record in known:
            for report in record.history:
                self.see(record.number, report.epoch, report.metrics.get(info.metric, math.nan))
            if record.status is Status.FAILED:
                self.fail(record.number)

    @property
    def is_empty(self) -> bool:
        """Whether no trial has reported the metric yet."""
        return not self._curves

    @property
    def best(self) -> tuple[int, float] | None:
        """The best trial and its value; of equals, the lowest number."""
        if self._is_stale:
            self._best = min(filter(self._is_sound, self._values), key=self._merit, default=None)
            self._is_stale = False
        return None if self._best is None else (self._best, self._values[self._best])

    def see(self, number: int, epoch: int, value: float) -> None:
        """Take in what a trial, or a replica of one, reported last."""
        if self._num_seeds == 1:
            self._curves[number] = {epoch: value}
        else:
            self._curves.setdefault(number, {})[epoch] = value
        trial = number // self._num_seeds
        first = trial * self._num_seeds
        curves = [self._curves.get(first + replica, {}) for replica in range(self._num_seeds)]
        shared = [reported for reported in curves[0] if all(reported in curve for curve in curves)]
        self._values[trial] = fmean(curve[shared[-1]] for curve in curves) if shared else math.nan
        self._compare(trial)

    def fail(self, number: int) -> None:
        """Take in that a trial, or a replica of one, has failed."""
        self._failed.add(number // self._num_seeds)
        self._is_stale |= self._best == number // self._num_seeds

    def _compare(self, trial: int) -> None:
        """Take in that a trial has another value: all are compared again only where the best may have become worse."""
        if trial == self._best:
            self._is_stale = True
        elif self._is_sound(trial) and not self._is_stale:
            is_better = self._best is None or self._merit(trial) < self._merit(self._best)
            self._best = trial if is_better else self._best

    def _is_sound(self, trial: int) -> bool:
        return trial not in self._failed and math.isfinite(self._values[trial])

    def _merit(self, trial: int) -> tuple[float, int]:
        return self._objective.score(self._values[trial]), trial

    def has_reached(self, target: float) -> bool:
        """Tell whether the best trial is as good as the target."""
        score = self._objective.score
        return self.best is not None and score(self.best[1]) <= score(target)


def explain_lack(metric: str, report: Report) -> str:
    """Say that a report lacks the metric by which trials are compared, and what to do."""
    names = ", ".join(map(repr, report.metrics))
    return (
        f"the study looks for the metric {metric!r}, but the function reported {names} alone at epoch {report.epoch}; "
        "report it at every epoch, or set metric= to one that is"
    )
