"""Who is best: the one place that knows which metric counts, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.trials.records import TrialRecord

INFEASIBLE = math.inf
"""The score of what failed, or is no finite number: worse than any other."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric that trials are compared by, and whether it should be small ("min") or large ("max")."""

    metric: str
    mode: str = "min"

    def score(self, value: float) -> float:
        """Return the value with the sign that makes smaller better; what is not finite is worse than all else."""
        if not math.isfinite(value):
            return INFEASIBLE
        return -value if self.mode == "max" else value

    def rank(self, trials: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Return the trials with a finite value of the metric, best first; equals by number."""
        scored = [(self.score(trial.value(self.metric)), trial.number, trial) for trial in trials]
        return tuple(trial for score, _, trial in sorted(scored, key=lambda one: one[:2]) if score < INFEASIBLE)
