"""The curves of transfer.py: loss over learning rate, a line for each width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transfer import Findings, Sweep

SHADES = {8: "#9ecae1", 4: "#6baed6", 1: "#08306b"}
PANEL_WIDTH, PANEL_HEIGHT = 340, 200
LEFT, TOP, GAP, ROW = 70, 70, 60, 290


def draw(all_findings: Mapping[str, Findings]) -> str:
    """Draw loss over learning rate, a line for each width; on the left without the parametrization."""
    width, height = LEFT + 2 * PANEL_WIDTH + GAP + 20, TOP + ROW * len(all_findings)
    shapes = [f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, scale in enumerate(SHADES):
        x = LEFT + 90 * number
        shapes.append(f'<path d="M{x} 22h22" stroke="{SHADES[scale]}" stroke-width="2.5"/>')
        shapes.append(text(x + 28, 26, f"S = {scale}" + " (target)" * (scale == 1), anchor="start"))
    for row, findings in enumerate(all_findings.values()):
        low, high = range_of(findings)
        for column, (way, sweep) in enumerate((("without", findings.plain), ("with", findings.scaled))):
            x, y = LEFT + column * (PANEL_WIDTH + GAP), TOP + row * ROW
            shapes.append(f'<g transform="translate({x} {y})">')
            shapes += draw_panel(sweep, low, high)
            shapes.append(text(PANEL_WIDTH / 2, -12, f"{findings.work.title}: {way}"))
            shapes += [text(PANEL_WIDTH / 2, PANEL_HEIGHT + 36, "learning rate"), "</g>"]
        turned = f'<g transform="translate(18 {y + PANEL_HEIGHT / 2}) rotate(-90)">'
        shapes += [turned, text(0, 0, "training loss"), "</g>"]
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    clip = f'<clipPath id="panel"><rect width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"/></clipPath>'
    body = "\n".join([clip, *shapes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>\n{body}\n</svg>\n'


def range_of(findings: Findings) -> tuple[float, float]:
    """Return what part of the losses to draw: from the lowest, without the worst sixth."""
    sweeps = (findings.plain, findings.scaled)
    values = sorted(loss for sweep in sweeps for losses in sweep.losses.values() for loss in losses)
    high = min(values[len(values) * 5 // 6], sweeps[0].ceiling)
    return values[0] - 0.05 * (high - values[0]), high


def draw_panel(sweep: Sweep, low: float, high: float) -> Iterator[str]:
    exponents = [math.log2(rate) for rate in sweep.rates]

    def across(rate: float) -> float:
        return PANEL_WIDTH * (math.log2(rate) - exponents[0] + 0.3) / (exponents[-1] - exponents[0] + 0.6)

    def down(loss: float) -> float:
        return PANEL_HEIGHT * (high - min(loss, 10 * sweep.ceiling)) / (high - low)

    for loss in ticks(low, high):
        yield f'<line x2="{PANEL_WIDTH}" y1="{down(loss):.1f}" y2="{down(loss):.1f}" stroke="#ddd"/>'
        yield text(-6, down(loss) + 4, f"{loss:g}", anchor="end")
    for rate in sweep.rates:
        raised = f'2<tspan dy="-4" font-size="9">{math.log2(rate):.0f}</tspan>'
        yield text(across(rate), PANEL_HEIGHT + 17, raised)
    yield f'<rect width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#888"/>'
    for scale, losses in sweep.losses.items():
        points = [(across(rate), down(loss)) for rate, loss in zip(sweep.rates, losses, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        look = f'fill="none" stroke="{SHADES[scale]}" stroke-width="2" clip-path="url(#panel)"'
        yield f'<polyline points="{path}" {look}/>'
        rate, loss = sweep.best(scale)
        yield f'<circle cx="{across(rate):.1f}" cy="{down(loss):.1f}" r="4" fill="{SHADES[scale]}" stroke="white"/>'


def ticks(low: float, high: float) -> list[float]:
    """Return some four to eight round numbers between two."""
    step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / step < 8)
    return [round(step * place, 2) for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def text(x: float, y: float, content: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{content}</text>'
