"""What a search costs at the least by each of many deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.plan.elastic import Limits, Prediction, plan_fastest, plan_greedily
from headwater.plan.jobs import Job

NUM_DEADLINES = 16
LONGEST = 4.0
"""The deadlines go to so many times the fastest plan's time, or beyond what was asked for."""
BEYOND = 1.2
ROUNDING = 1 + 1e-9
"""A plan is to keep to a deadline that is its own time, however that is rounded."""

Planner = Callable[[Job, Limits], Prediction | None]


def list_deadlines(job: Job, marked_s: float) -> list[float]:
    """Return deadlines from the fastest plan's on to some time after one that is of interest, that one among them."""
    fastest = plan_fastest(job).seconds * ROUNDING
    last = max(LONGEST * fastest, BEYOND * marked_s)
    step = (last / fastest) ** (1 / (NUM_DEADLINES - 1))
    return sorted([marked_s * ROUNDING, *(fastest * step**number for number in range(NUM_DEADLINES))])


def trace_prices(
    job: Job, deadlines: Sequence[float], planner: Planner = plan_greedily
) -> tuple[tuple[float, float], ...]:
    """Return the least price by each deadline that can be kept, for a plan for one serves all later ones too."""
    points: list[tuple[float, float]] = []
    for deadline_s in deadlines:
        plan = planner(job, Limits(deadline_s=deadline_s))
        if plan is not None:
            price = plan.cost_dollars
            points.append((deadline_s, min(price, points[-1][1]) if points else price))
    return tuple(points)
