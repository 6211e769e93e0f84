"""Who is best: the one place that knows which metric counts, in which direction, and which of its values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.trials.constraints import Constraint

if TYPE_CHECKING:
    from headwater.trials.records import Report, TrialRecord

INFEASIBLE = math.inf
"""The score of what failed, or is no finite number: worse than any other."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric that trials are compared by, and whether it should be small ("min") or large ("max")."""

    metric: str
    mode: str = "min"
    judge: str = "last"
    """Which of the values that a trial reported counts: the "last", or the "best"."""
    constraints: tuple[Constraint, ...] = ()
    """What trials must keep to: one that does goes before all that do not."""

    @property
    def names(self) -> frozenset[str]:
        """The metrics that it looks at."""
        return frozenset([self.metric, *(one.metric for one in self.constraints)])

    def score(self, value: float) -> float:
        """Return the value with the sign that makes smaller better; what is not finite is worse than all else."""
        if not math.isfinite(value):
            return INFEASIBLE
        return -value if self.mode == "max" else value

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Return by how much metrics break the constraints, all taken together; 0 where they keep them."""
        return sum(max(one.violation(metrics), 0.0) for one in self.constraints) if self.constraints else 0.0

    def is_kept(self, trial: TrialRecord) -> bool:
        """Tell whether the last report of a trial keeps to the constraints."""
        return not self.violation(trial.metrics)

    def merit(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """Return what metrics are compared by, small being good: how far constraints are broken, then the score."""
        return self.violation(metrics), self.score(metrics.get(self.metric, math.nan))

    def value_of(self, trial: TrialRecord) -> float:
        """Return the value that counts of a trial; NaN where there is none."""
        return self.judge_record(trial).value(self.metric)

    def rank(self, trials: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Return the trials with a finite value of the metric, best first; equals by number.

        Those that keep to the constraints come before the others, of which the nearest come first.
        """
        scored = [(*self.merit(self.judge_record(trial).metrics), trial.number, trial) for trial in trials]
        return tuple(trial for _, score, _, trial in sorted(scored, key=lambda one: one[:3]) if score < INFEASIBLE)

    def judge_record(self, trial: TrialRecord) -> TrialRecord:
        """Return a trial in whose history the metric is at each epoch what counts then."""
        if self.judge == "last":
            return trial
        bests: dict[int, float] = {}
        return replace(trial, history=tuple(self.judge_report(report, bests) for report in trial.history))

    def judge_report(self, report: Report, bests: dict[int, float]) -> Report:
        """Return the report with the value that counts; one that is not finite always does, for it ends the trial.

        `bests` is what each trial has had at best until now, and is kept up to date.
        """
        value = report.metrics.get(self.metric)
        if self.judge == "last" or value is None or not math.isfinite(value):
            return report
        best = min(value, bests.get(report.number, value), key=self.score)
        bests[report.number] = best
        return replace(report, metrics={**report.metrics, self.metric: best})
