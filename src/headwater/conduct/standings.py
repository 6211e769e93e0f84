"""How trials compare while a study runs: as they will in its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from headwater.store import StudyInfo
from headwater.trials import INFEASIBLE, Report, Status, TrialRecord


class Standings:
    """Knows the best trial by the last value of the metric, as `Result.ranked` has it: without those that failed.

    Of a trial under several seeds that is the mean of the last epoch that all replicas have reported.
    """

    def __init__(self, info: StudyInfo, known: Sequence[TrialRecord] = ()) -> None:
        self._objective = info.objective
        self._num_seeds = info.num_seeds
        self._curves: dict[int, dict[int, Mapping[str, float]]] = {}
        self._metrics: dict[int, Mapping[str, float]] = {}
        self._merits: dict[int, tuple[float, float, int]] = {}
        self._failed: set[int] = set()
        self._best: int | None = None
        self._is_stale = False
        for record in known:
            for report in record.history:
                self.see(report)
            if record.status is Status.FAILED:
                self.fail(record.number)

    @property
    def is_empty(self) -> bool:
        """Whether no trial has reported the metric yet."""
        return not self._metrics

    @property
    def best(self) -> tuple[int, float] | None:
        """The best trial and its value; of equals, the lowest number."""
        if self._is_stale:
            self._best = min(filter(self._is_sound, self._metrics), key=self._merits.__getitem__, default=None)
            self._is_stale = False
        return None if self._best is None else (self._best, self._metrics[self._best][self._objective.metric])

    def see(self, report: Report) -> None:
        """Take in what a trial, or a replica of one, reported last."""
        trial = report.number // self._num_seeds
        metrics = report.metrics if self._num_seeds == 1 else self._average(trial, report)
        self._metrics[trial] = metrics
        self._merits[trial] = merit = (*self._objective.merit(metrics), trial)
        if trial == self._best:  # all are compared again only where the best may have become worse
            self._is_stale = True
        elif not self._is_stale and self._is_sound(trial) and (self._best is None or merit < self._merits[self._best]):
            self._best = trial

    def fail(self, number: int) -> None:
        """Take in that a trial, or a replica of one, has failed."""
        self._failed.add(number // self._num_seeds)
        self._is_stale |= self._best == number // self._num_seeds

    def _average(self, trial: int, report: Report) -> Mapping[str, float]:
        """Take in what a replica reported, and return the means of the last epoch that all of its trial have."""
        self._curves.setdefault(report.number, {})[report.epoch] = report.metrics
        first = trial * self._num_seeds
        curves = [self._curves.get(first + replica, {}) for replica in range(self._num_seeds)]
        shared = [reported for reported in curves[0] if all(reported in curve for curve in curves)]
        last = [curve[shared[-1]] for curve in curves] if shared else [{}]
        return {name: fmean(one.get(name, math.nan) for one in last) for name in self._objective.names}

    def _is_sound(self, trial: int) -> bool:
        return trial not in self._failed and self._merits[trial][1] < INFEASIBLE

    def has_reached(self, target: float) -> bool:
        """Tell whether the best trial is as good as the target, and keeps to the constraints."""
        if self.best is None:
            return False
        violation, score, _ = self._merits[self.best[0]]
        return not violation and score <= self._objective.score(target)


def explain_silence(metric: str) -> str:
    """Say that a training function came to its end without a report, and what to do."""
    return (
        f"the training function came to its end without a report; call trial.report({metric}=...) at the end of every "
        f"epoch, or return the value of {metric!r} once it is done"
    )


def explain_lack(metric: str, report: Report) -> str:
    """Say that a report lacks the metric by which trials are compared, and what to do."""
    names = ", ".join(map(repr, report.metrics))
    return (
        f"the study looks for the metric {metric!r}, but the training function reported only {names} at epoch "
        f"{report.epoch}; report {metric!r} at every epoch, or set metric= to a name that is reported"
    )
