"""Axes of a figure: from values to places on the paper, with round marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise

from headwater.report.consoles import make_visible
from headwater.report.numbers import show_number

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 54
SHORT = 1e5
LARGEST, LEAST = 1e150, 1e-150
"""Beyond these, spans and their powers are no floats any more: such values stand outside of the frame."""
LETTER = 6.4
"""How wide a letter is, about."""
INK, GREY, LINE, BLUE = "#1b2127", "#5d6872", "#dfe4e7", "#0b6a99"
RAMP = ((199, 206, 211), (142, 178, 193), (74, 148, 178), (22, 104, 148), (10, 52, 92))
"""From the worst to the best; it darkens too, for paper without colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction of a figure."""

    name: str
    low: float
    high: float
    is_log: bool = False
    words: tuple[str, ...] = ()
    """What stands at 0, 1, 2 and so on, where values are no numbers."""

    @classmethod
    def over(cls, name: str, values: Iterable[float], *, is_log: bool = False) -> Axis:
        """Span finite values, with some air."""
        finite = [value for value in values if abs(value) <= LARGEST and (value >= LEAST or not is_log)]
        low, high = (min(finite), max(finite)) if finite else (0.1, 1.0)
        if is_log:
            air = (high / low) ** 0.04 if high > low else 2.0
            return cls(name=name, low=low / air, high=high * air, is_log=True)
        air = (high - low) * 0.05 if high - low > LEAST else max(abs(high) * 0.1, LEAST) if high else 1.0
        return cls(name=name, low=low - air, high=high + air)

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, from 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else math.nan
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Return round values to write beside the axis."""
        if self.words:
            return [float(place) for place in range(len(self.words))]
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [10.0**power for power in range(first, last + 1, max(1, (last - first) // 6))]
            return powers if len(powers) > 1 else [self.low, math.sqrt(self.low * self.high), self.high]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if rough <= power * factor * (1 + 1e-9))
        return [place * step for place in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]

    def show(self, value: float) -> str:
        """Write a value of the axis; whole numbers as such, as long as they are short."""
        if self.words:
            return self.words[round(value)][:12]
        return f"{value:.0f}" if value.is_integer() and abs(value) < SHORT else show_number(value, 3)

    def aired(self) -> Axis:
        """Return it with some air at both ends."""
        if self.words:
            return replace(self, low=-0.5, high=len(self.words) - 0.5)
        return Axis.over(self.name, (self.low, self.high), is_log=self.is_log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A figure with two axes."""

    x: Axis
    y: Axis
    title: str

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where on the paper a point lies."""
        left = LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT)
        return left, TOP + (1 - self.y.share(y)) * (HEIGHT - TOP - BOTTOM)

    def path(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.2, dash: str = "") -> str:
        """Draw a line through points, of one a dot; it breaks where one is not finite."""
        steps, is_down = [], False
        for x, y in points:
            left, top = self.at(x, y)
            if not (math.isfinite(left) and math.isfinite(top)):
                is_down = False
                continue
            steps.append(f"{'L' if is_down else 'M'}{left:.1f} {top:.1f}")
            is_down = True
        if len(steps) == 1:
            across, down = steps[0][1:].split()
            return f'<circle cx="{across}" cy="{down}" r="{width + 0.6}" fill="{colour}"/>'
        style = f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"'
        style += f' stroke-dasharray="{dash}"' if dash else ""
        return f'<path d="{"".join(steps)}" {style}/>' if steps else ""

    def draw(self, shapes: Iterable[str]) -> str:
        """Draw the axes, and these shapes within them."""
        return as_svg([text(LEFT, 20, self.title, weight="bold"), *self._draw_axes(), *_clipped(shapes)])

    def _draw_axes(self) -> Iterator[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for mark in self.x.marks():
            left, _ = self.at(mark, self.y.low)
            yield f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{TOP}" y2="{bottom}" stroke="{LINE}"/>'
            yield text(left, bottom + 18, self.x.show(mark), anchor="middle", colour=GREY)
        for mark in self.y.marks():
            _, top = self.at(self.x.low, mark)
            yield f'<line x1="{LEFT}" x2="{right}" y1="{top:.1f}" y2="{top:.1f}" stroke="{LINE}"/>'
            yield text(LEFT - 8, top + 4, self.y.show(mark), anchor="end", colour=GREY)
        yield text(right, bottom + 40, self.x.name, anchor="end", colour=GREY)
        yield f'<g transform="translate(16 {TOP}) rotate(-90)">{text(0, 0, self.y.name, anchor="end", colour=GREY)}</g>'


def text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, weight: str = "normal") -> str:
    """Write words at a place."""
    style = f'text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(make_visible(words[:120]))}</text>'


def ramp(share: float) -> str:
    """Return the colour for a share, from 0 for the worst to 1 for the best."""
    at = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    first, last = list(pairwise(RAMP))[min(int(at), len(RAMP) - 2)]
    part = at - min(int(at), len(RAMP) - 2)
    mixed = (round(low + (high - low) * part) for low, high in zip(first, last, strict=True))
    return "#" + "".join(f"{one:02x}" for one in mixed)


def as_svg(shapes: Iterable[str], height: float = HEIGHT) -> str:
    """Put shapes on white paper."""
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    paper = f'<rect width="{WIDTH}" height="{height:g}" fill="white"/>'
    body = "\n".join([paper, *shapes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def _clipped(shapes: Iterable[str]) -> Iterator[str]:
    box = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    yield f'<clipPath id="inside"><rect {box}/></clipPath>\n<g clip-path="url(#inside)">'
    yield from shapes
    yield "</g>"
