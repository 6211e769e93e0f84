"""An elastic plan as SVG: what it costs over the deadline, and how many instances it holds over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from headwater.plan.elastic import Limits, plan_greedily, plan_naively, plan_static
from headwater.plan.elastic_plan import ElasticPlan, lay_out
from headwater.plan.jobs import Job
from headwater.plan.prices import Planner, list_deadlines, trace_prices

WIDTH, HEIGHT = 1000, 400
PANEL_WIDTH, TOP, BOTTOM = 370, 74, 330
LEFT, MIDDLE = 80, 560
NUM_TICKS = 5
COLOURS = {"elastic": "#2171b5", "static": "#d95f0e", "naive": "#7a7a7a"}
NAMES = {"elastic": "elastic", "static": "one size throughout", "naive": "same devices per trial"}
DASHES = {"elastic": "", "static": "7 4", "naive": "2 3"}
PLANNERS: dict[str, Planner] = {
    "naive": plan_naively,
    "static": plan_static,
    "elastic": plan_greedily,
}


@dataclass(frozen=True, slots=True)
class _Panel:
    """Where numbers are drawn: x from 0 or a least value on, y from 0 on."""

    left: float
    least_x: float
    most_x: float
    most_y: float

    def place(self, x: float, y: float) -> tuple[float, float]:
        share = (x - self.least_x) / (self.most_x - self.least_x)
        return self.left + share * PANEL_WIDTH, BOTTOM - y / self.most_y * (BOTTOM - TOP)

    def draw_line(self, points: Sequence[tuple[float, float]], name: str) -> str:
        placed = " ".join("{:.1f},{:.1f}".format(*self.place(x, y)) for x, y in points)
        style = f'fill="none" stroke="{COLOURS[name]}" stroke-width="2" stroke-dasharray="{DASHES[name]}"'
        return f'<polyline points="{placed}" {style}><title>{NAMES[name]}</title></polyline>'

    def clip(self, name: str) -> str:
        inside = f'<rect x="{self.left}" y="{TOP}" width="{PANEL_WIDTH}" height="{BOTTOM - TOP}"/>'
        return f'<clipPath id="{name}">{inside}</clipPath>'

    def draw_axes(self, title: str, x_title: str, write_y: Callable[[float], str]) -> Iterator[str]:
        yield _text(self.left, TOP - 16, title, "start", 'font-weight="bold"')
        for value in _list_ticks(0.0, self.most_y):
            x, y = self.place(self.least_x, value)
            yield f'<line x1="{x:.1f}" x2="{x + PANEL_WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            yield _text(x - 8, y + 4, write_y(value), "end")
        for value in _list_ticks(self.least_x, self.most_x):
            x, y = self.place(value, 0.0)
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 5:.1f}" stroke="#888"/>'
            yield _text(x, y + 20, f"{value:g}", "middle")
        yield _text(self.left + PANEL_WIDTH, BOTTOM + 40, x_title, "end")


def draw_plan(job: Job, plan: ElasticPlan, limits: Limits, instance: str) -> str:
    """Draw the price over the deadline and the cluster size over time, for the plan and for those beside it."""
    shapes = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    told = f"{len(job.stages)} stages on {instance}: {plan.seconds / 60:.1f} min for ${plan.cost_dollars:.2f}"
    shapes.append(_text(20, 26, told, "start", 'font-weight="bold" font-size="15"'))
    shapes += _draw_prices(job, plan, limits)
    shapes += _draw_sizes(job, plan, limits)
    shapes += _draw_legend()
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {style}>\n{body}\n</svg>\n'


def _draw_prices(job: Job, plan: ElasticPlan, limits: Limits) -> Iterator[str]:
    marked = limits.deadline_s or plan.seconds
    deadlines = list_deadlines(job, marked)
    curves = {name: _as_steps(trace_prices(job, deadlines, planner)) for name, planner in PLANNERS.items()}
    prices = sorted(price for points in curves.values() for _, price in points)
    # The fastest plans can cost many times what all others do, and would flatten the rest of the picture.
    most = min(prices[-1], 3 * prices[len(prices) // 2])
    panel = _Panel(LEFT, deadlines[0] / 60, deadlines[-1] / 60, 1.1 * max(most, plan.cost_dollars))
    yield from panel.draw_axes("price over the deadline", "deadline in minutes", lambda value: f"${value:g}")
    yield panel.clip("prices")
    yield '<g clip-path="url(#prices)">'
    for name, points in curves.items():
        if points:
            yield panel.draw_line([(deadline / 60, price) for deadline, price in points], name)
    yield "</g>"
    x, y = panel.place(marked / 60, plan.cost_dollars)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{COLOURS["elastic"]}"><title>the plan</title></circle>'


def _as_steps(prices: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps to a price until the next deadline."""
    held = [(after, price) for (_, price), (after, _) in pairwise(prices)]
    return [point for pair in zip(prices, [*held, *prices[-1:]], strict=True) for point in pair]


def _draw_sizes(job: Job, plan: ElasticPlan, limits: Limits) -> Iterator[str]:
    others = {name: planner(job, limits) for name, planner in PLANNERS.items() if name != "elastic"}
    plans = {name: lay_out(job, one.devices) for name, one in others.items() if one is not None} | {"elastic": plan}
    most_s = max(*(one.seconds for one in plans.values()), limits.deadline_s or 0.0)
    tallest = max(*plan.instances, *(max(one.instances) for name, one in plans.items() if name != "naive"), 1)
    panel = _Panel(MIDDLE, 0.0, 1.02 * most_s / 60, 1.15 * tallest)
    yield from panel.draw_axes("instances over time", "minutes", lambda value: f"{value:g}")
    yield panel.clip("sizes")
    yield '<g clip-path="url(#sizes)">'
    for name, one in plans.items():
        yield panel.draw_line(_step(one), name)
    yield "</g>"
    if limits.deadline_s is not None:
        x, _ = panel.place(limits.deadline_s / 60, 0)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}" stroke="#c00" stroke-dasharray="4 3"/>'
        yield _text(x - 5, TOP + 12, "deadline", "end", 'fill="#c00"')


def _step(plan: ElasticPlan) -> list[tuple[float, float]]:
    """Return when a plan holds how many instances."""
    points, at = [(0.0, 0.0)], 0.0
    for stage in plan.stages:
        points.append((at / 60, stage.num_instances))
        at += stage.seconds
        points.append((at / 60, stage.num_instances))
    return [*points, (at / 60, 0.0)]


def _draw_legend() -> Iterator[str]:
    for place, (name, colour) in enumerate(COLOURS.items()):
        x = 20 + 190 * place
        line = f'<line x1="{x}" x2="{x + 28}" y1="{HEIGHT - 14}" y2="{HEIGHT - 14}"'
        yield f'{line} stroke="{colour}" stroke-width="2" stroke-dasharray="{DASHES[name]}"/>'
        yield _text(x + 36, HEIGHT - 10, NAMES[name], "start")


def _list_ticks(least: float, most: float) -> list[float]:
    """Return round numbers between the ends."""
    if most <= least:
        return [least]
    rough = (most - least) / NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if rough <= power * factor * (1 + 1e-9))
    first = math.ceil(least / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(most / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
