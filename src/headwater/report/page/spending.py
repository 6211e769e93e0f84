"""What nodes cost, for a page: figures, stages and the lines of its plots."""

from __future__ import annotations

from typing import Any, TypeAlias

from headwater.report.figures.nodes import Points, add_costs, count_nodes, plan_costs, plan_sizes
from headwater.trials import Spending

Json: TypeAlias = dict[str, Any]  # Any: JSON values

MOST_CORNERS = 2_000
"""So many corners of a line are told; of a run with thousands of nodes, every so many."""


def pack_spending(spending: Spending) -> Json:
    """Return what was planned, what is spent and what other deadlines would have cost."""
    sizes = count_nodes(spending.stays, spending.seconds)
    held = dict(sizes)
    lost = [stay.end_s for stay in spending.stays if stay.is_lost and stay.end_s is not None]
    is_whole = not spending.earlier_s  # prices are those of the whole, and a run that goes on pays for the rest
    return {
        **spending.as_json(),
        "sizes": _thin(sizes),
        "planned_sizes": _thin(plan_sizes(spending)) if spending.stages else [],
        "costs": add_costs(spending.stays, spending.seconds),
        "planned_costs": _thin(plan_costs(spending)) if spending.stages else [],
        "lost": _thin([(at_s, held.get(at_s, 0.0)) for at_s in lost]),
        "prices": list(spending.prices) if is_whole else [],
    }


def describe_cost(spending: Spending | None) -> Json | None:
    """Return what a study has cost in all its runs and what this one was to cost; None where no node is paid for."""
    if spending is None:
        return None
    return {
        "dollars": spending.total_dollars,
        "planned_dollars": spending.planned_dollars,
        "forecast_dollars": spending.forecast_dollars if spending.num_nodes else None,
        "budget_dollars": spending.budget_dollars,
    }


def _thin(points: Points) -> Points:
    step = -(-len(points) // MOST_CORNERS)
    return points if step <= 1 else [*points[::step], points[-1]]
