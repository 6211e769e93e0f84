"""Nodes and their cost over time, as they were planned and as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from headwater.report.figures.axes import BLUE, GREY, HEIGHT, INK, LEFT, RIGHT, TOP, WIDTH, Axis, Frame, as_svg, text
from headwater.trials import NodeStay, Spending

ORANGE, RED = "#d95f0e", "#b3202c"
PLANNED, ON_DEMAND = "7 4", "2 3"
"""Dashes, so that lines can be told without their colours."""
LEAST_HEIGHT = 5.0
"""So many nodes have room, so that the axis has whole numbers."""
NUM_PLACES = 200
"""What was spent is drawn at so many moments."""

Points = list[tuple[float, float]]


def draw_nodes(name: str, spending: Spending) -> str:
    """Draw how many nodes there were over time and what they cost, beside the plan, the deadline and the budget."""
    stays, end_s = spending.stays, spending.seconds
    planned_s = sum(stage.planned_s for stage in spending.stages)
    last_s = max(end_s, planned_s, 1e-9)
    x = Axis(name="time since the run began, s", low=0.0, high=1.02 * max(last_s, _near(spending.deadline_s, last_s)))
    sizes, costs = count_nodes(stays, end_s), add_costs(stays, end_s)
    planned = plan_sizes(spending)
    most = max(size for _, size in [*sizes, *planned])
    y = Axis(name="nodes", low=0.0, high=max(1.15 * most, LEAST_HEIGHT))
    upper = Frame(x=x, y=y, title=f"{name}: nodes over time")
    dearest = max(costs[-1][1], spending.planned_dollars or 0.0, 1e-9)
    high = 1.15 * max(dearest, _near(spending.budget_dollars, dearest))
    lower = Frame(x=x, y=Axis(name="dollars", low=0.0, high=high), title=f"{name}: cost over time")
    shapes = [
        upper.draw([*_draw_sizes(upper, spending, planned, sizes), *_draw_limit(upper, spending.deadline_s, None)]),
        f'<g transform="translate(0 {HEIGHT})">',
        lower.draw(
            [
                lower.path(plan_costs(spending), ORANGE, 2, PLANNED),
                lower.path(costs, BLUE, 2),
                *_draw_limit(lower, spending.deadline_s, spending.budget_dollars),
            ]
        ),
        "</g>",
        *_draw_legend(spending),
    ]
    return as_svg(shapes, 2 * HEIGHT)


def count_nodes(stays: Sequence[NodeStay], end_s: float) -> Points:
    """Return how many nodes were held from when on, as the corners of a line."""
    changes = [(max(stay.begin_s, 0.0), 1) for stay in stays]
    changes += [(end_s if stay.end_s is None else min(stay.end_s, end_s), -1) for stay in stays]
    points: Points = [(0.0, 0.0)]
    for at_s, change in sorted(changes):
        points += [(at_s, points[-1][1]), (at_s, points[-1][1] + change)]
    return [*points, (end_s, points[-1][1])]


def add_costs(stays: Sequence[NodeStay], end_s: float) -> Points:
    """Return what was spent by when."""
    times = sorted({end_s * place / NUM_PLACES for place in range(NUM_PLACES + 1)})
    return [(at_s, sum(stay.cost_until(at_s) for stay in stays)) for at_s in times]


def plan_sizes(spending: Spending) -> Points:
    """Return how many nodes were to be held from when on, as the corners of a line."""
    points: Points = [(0.0, 0.0)]
    for stage in spending.stages:
        at_s = points[-1][0]
        points += [(at_s, stage.planned_nodes), (at_s + stage.planned_s, stage.planned_nodes)]
    return [*points, (points[-1][0], 0.0)]


def plan_costs(spending: Spending) -> Points:
    """Return what was to be spent by when, evenly within each stage."""
    times = accumulate((stage.planned_s for stage in spending.stages), initial=0.0)
    costs = accumulate((stage.planned_dollars for stage in spending.stages), initial=0.0)
    return list(zip(times, costs, strict=True))


def _near(limit: float | None, last: float) -> float:
    """Return a limit that fits into the picture; one that is far beyond everything would flatten the rest."""
    return limit if limit is not None and limit <= 2 * last else 0.0


def _draw_sizes(frame: Frame, spending: Spending, planned: Points, sizes: Points) -> Iterator[str]:
    yield frame.path(planned, ORANGE, 2, PLANNED)
    if spending.spot_dollars is not None:
        paid = count_nodes([stay for stay in spending.stays if not stay.is_spot], spending.seconds)
        yield frame.path(paid, GREY, 2, ON_DEMAND)
    yield frame.path(sizes, BLUE, 2)
    held = dict(sizes)
    for stay in spending.stays:
        if stay.is_lost and stay.end_s is not None:
            left, top = frame.at(stay.end_s, held.get(stay.end_s, 0.0))
            yield f'<circle cx="{left:.1f}" cy="{top:.1f}" r="5" fill="{RED}"><title>a node was lost</title></circle>'


def _draw_limit(frame: Frame, x: float | None, y: float | None) -> Iterator[str]:
    style = f'stroke="{RED}" stroke-dasharray="5 4"'
    if x is not None and x <= frame.x.high:
        left, _ = frame.at(x, 0.0)
        yield f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{TOP}" y2="{HEIGHT}" {style}/>'
        yield text(left - 6, TOP + 14, "deadline", anchor="end", colour=RED)
    if y is not None and y <= frame.y.high:
        _, top = frame.at(0.0, y)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top:.1f}" y2="{top:.1f}" {style}/>'
        yield text(LEFT + 6, top - 6, "budget", colour=RED)


def _draw_legend(spending: Spending) -> Iterator[str]:
    lines = [("planned", ORANGE, PLANNED), ("actual", BLUE, "")]
    lines += [("of these on demand", GREY, ON_DEMAND)] if spending.spot_dollars is not None else []
    for place, (word, colour, dash) in enumerate(lines):
        x, y = LEFT + 90 * place, HEIGHT - 14
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        yield f'<line x1="{x}" x2="{x + 20}" y1="{y - 4}" y2="{y - 4}" {style}/>'
        yield text(x + 25, y, word, colour=INK)
