"""The timeline of a study as SVG: a row for each device, a bar for each span, with its trials where they fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from headwater.report.consoles import make_visible
from headwater.report.numbers import show_seconds
from headwater.report.timeline import DeviceTimeline, Timeline
from headwater.trials import Span, SpanPurpose

COLOURS = {
    SpanPurpose.LANES: "#2171b5",
    SpanPurpose.PACK: "#7a5195",
    SpanPurpose.RANKS: "#238b45",
    SpanPurpose.MEASUREMENT: "#fd8d3c",
    SpanPurpose.ABSENCE: "white",
}
WIDTH, ROW, BAR = 1000, 24, 18
TOP, RIGHT, BOTTOM = 64, 80, 40
LETTER = 6.6
"""How wide a letter is, about."""
NUM_TICKS = 8
LINE = 18
MAX_LETTERS = int((WIDTH - 40) / LETTER)


def draw_timeline(timeline: Timeline) -> str:
    """Draw it, with a scale of seconds below and the share of time in which each device was busy on the right."""
    left = 20 + LETTER * max((len(one.device) for one in timeline.devices), default=0)
    scale = (WIDTH - left - RIGHT) / (timeline.end_s or 1.0)
    lines = timeline.explain()
    bottom = TOP + ROW * len(timeline.devices)
    height = bottom + BOTTOM + LINE * len(lines)
    shapes = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    shapes.append(_text(20, 24, timeline.describe(), "start", "font-weight='bold'"))
    shown = [item for item in COLOURS.items() if item[0] is not SpanPurpose.ABSENCE]
    for place, (purpose, colour) in enumerate(shown):
        x = 20 + 130 * place
        shapes.append(f'<rect x="{x}" y="36" width="14" height="14" fill="{colour}"/>')
        shapes.append(_text(x + 20, 48, purpose.value, "start"))
    shapes += _draw_scale(timeline, left, scale, bottom)
    for place, line in enumerate(lines):
        shapes.append(_text(20, bottom + BOTTOM + LINE * (place + 0.5), _clip(line), "start"))
    for place, one in enumerate(timeline.devices):
        y = TOP + ROW * place
        shapes += _draw_device(one, left, scale, y)
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {style}>\n{body}\n</svg>\n'


def _clip(line: str) -> str:
    return line if len(line) <= MAX_LETTERS else f"{line[: MAX_LETTERS - 1]}…"


def _draw_device(one: DeviceTimeline, left: float, scale: float, y: float) -> Iterator[str]:
    middle = y + (ROW + 8) / 2
    yield _text(left - 8, middle, one.device, "end")
    width = one.end_s * scale
    yield f'<rect x="{left:.1f}" y="{y + (ROW - BAR) / 2}" width="{width:.1f}" height="{BAR}" fill="#eee"/>'
    for span in one.spans:
        yield _draw_span(span, left + span.begin_s * scale, span.seconds * scale, y)
    yield _text(left + width + 8, middle, f"{one.busy_share:.1%}", "start")


def _draw_span(span: Span, x: float, width: float, y: float) -> str:
    numbers = ", ".join(map(str, span.trials))
    whose = f"trials {numbers}" if span.trials else "the device was not there"
    told = f"{span.study}, {span.purpose.value}: {whose}; {span.begin_s:.3f} to {span.end_s:.3f} s"
    bar = (
        f'<rect x="{x:.2f}" y="{y + (ROW - BAR) / 2}" width="{max(width, 0.2):.2f}" height="{BAR}" '
        f'fill="{COLOURS[span.purpose]}" stroke="white" stroke-width="{min(0.8, width / 4):.2f}">'
        f"<title>{escape(make_visible(told))}</title></rect>"
    )
    label = numbers if len(span.trials) == 1 else f"{len(span.trials)} trials"
    if LETTER * len(label) + 4 > width or not span.trials:
        return bar
    return bar + _text(x + width / 2, y + (ROW + 8) / 2, label, "middle", "fill='white' pointer-events='none'")


def _draw_scale(timeline: Timeline, left: float, scale: float, y: float) -> Iterator[str]:
    step = _round_up(timeline.end_s / NUM_TICKS) if timeline.end_s else 1.0
    for place in range(int(timeline.end_s / step) + 1):
        x = left + place * step * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{y + 4}" stroke="#ccc"/>'
        yield _text(x, y + 18, f"{place * step:g}", "middle")
    yield _text(left + timeline.end_s * scale, y + 34, f"seconds, of {show_seconds(timeline.end_s)}", "end")


def _round_up(value: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if value <= power * factor * (1 + 1e-9))


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(make_visible(text))}</text>'
