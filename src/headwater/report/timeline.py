"""What each device did while a study ran: as a value, as text, and as JSON; `timeline_drawing` draws it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from headwater.report.changes import MAX_CHANGES, Change
from headwater.report.numbers import show_count, show_seconds
from headwater.trials import Span, SpanPurpose

ABSENCE = SpanPurpose.ABSENCE
MOST_DEVICES = 40
"""So many devices have a line in a terminal; a drawing and JSON have all."""
MOST_DIGITS = 20
"""Of the place of a device in its name; longer ones are text."""
MARKS = {
    SpanPurpose.LANES: "█",
    SpanPurpose.PACK: "▓",
    SpanPurpose.RANKS: "▚",
    SpanPurpose.MEASUREMENT: "▒",
    ABSENCE: "╌",
    None: "·",
}
"""How a cell is drawn in which a device does this most of the time; None: it is idle."""
LEAST_GAP = 1e-3
"""Shorter gaps, as a share of the whole time, are no gaps but what it takes to place something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimeline:
    """What one device did, from 0 to the end of the whole."""

    device: str
    spans: tuple[Span, ...]
    end_s: float

    @property
    def busy_s(self) -> float:
        """How long trials sat on it."""
        return sum(span.seconds for span in self.spans if span.purpose is not ABSENCE)

    @property
    def there_s(self) -> float:
        """How long it was there."""
        return self.end_s - sum(span.seconds for span in self.spans if span.purpose is ABSENCE)

    @property
    def busy_share(self) -> float:
        """The part of the time for which it was there in which trials sat on it."""
        return self.busy_s / self.there_s if self.there_s else 0.0

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """From when to when it was idle."""
        ends = [(0.0, 0.0), *((span.begin_s, span.end_s) for span in self.spans), (self.end_s, self.end_s)]
        between = ((before[1], after[0]) for before, after in pairwise(ends))
        return tuple(gap for gap in between if gap[1] - gap[0] > LEAST_GAP * self.end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What all devices did that trials ever sat on."""

    study: str
    devices: tuple[DeviceTimeline, ...]
    end_s: float
    changes: tuple[Change, ...] = ()
    """Why trials had the devices they had."""

    @classmethod
    def of(cls, study: str, spans: Sequence[Span], changes: Sequence[Change] = ()) -> Timeline:
        """Sort the spans of a study by device and time."""
        used = [span for span in spans if span.purpose is not ABSENCE]
        end_s = max((span.end_s for span in used), default=0.0)
        by_device: dict[str, list[Span]] = {span.device: [] for span in used}
        for span in sorted(spans, key=lambda span: span.begin_s):
            if span.device in by_device and span.begin_s < end_s:
                by_device[span.device].append(replace(span, end_s=min(span.end_s, end_s)))
        names = sorted(by_device, key=_as_ordered)
        devices = tuple(DeviceTimeline(device=name, spans=tuple(by_device[name]), end_s=end_s) for name in names)
        return cls(study=study, devices=devices, end_s=end_s, changes=tuple(changes))

    @property
    def busy_share(self) -> float:
        """The part of the time of all devices in which trials sat on them."""
        there_s = sum(device.there_s for device in self.devices)
        return sum(device.busy_s for device in self.devices) / there_s if there_s else 0.0

    @property
    def has_absences(self) -> bool:
        """Whether devices came late or left early."""
        return any(span.purpose is ABSENCE for device in self.devices for span in device.spans)

    def describe(self) -> str:
        """Sum it up in a line."""
        devices = show_count(len(self.devices), "device")
        return f"study {self.study}: {devices} for {show_seconds(self.end_s)}, {self.busy_share:.1%} busy"

    def as_json(self) -> dict[str, Any]:  # Any: JSON values
        """Return it as JSON has it; all times are in seconds since the run began."""
        return {
            "study": self.study,
            "end_s": self.end_s,
            "busy_share": self.busy_share,
            "devices": [
                {
                    "device": one.device,
                    "busy_share": one.busy_share,
                    "gaps": [list(gap) for gap in one.gaps],
                    "spans": [_span_as_json(span) for span in one.spans],
                }
                for one in self.devices
            ],
            "changes": [{"trials": list(change.trials), "text": change.text} for change in self.changes],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.describe(), style="bold")
        marks = MARKS.items() if self.has_absences else [item for item in MARKS.items() if item[0] is not ABSENCE]
        yield Text("  ".join(f"{mark} {purpose or 'idle'}" for purpose, mark in marks), style="dim")
        shown = self.devices[:MOST_DEVICES]
        margin = max((len(one.device) for one in shown), default=0)
        told = [f" {one.busy_share:>4.0%} busy, idle {show_seconds(one.there_s - one.busy_s)}" for one in shown]
        width = max(options.max_width - margin - 1 - max(map(len, told), default=0), 10)
        for one, text in zip(shown, told, strict=True):
            yield Text.assemble((f"{one.device:<{margin}} ", "cyan"), draw_bar(one, width), text)
        if len(self.devices) > MOST_DEVICES:
            yield Text(f"and {len(self.devices) - MOST_DEVICES} more; -o FILE.svg draws all", style="dim")
        yield from (Text(line) for line in self.explain())

    def explain(self) -> list[str]:
        """Say in lines why trials had the devices they had, and what that gained; none where nothing was noted."""
        shown = self.changes[-MAX_CHANGES:]
        left_out = f", the last of {show_count(len(self.changes), 'note')}" if len(shown) < len(self.changes) else ""
        return [f"why trials had several devices{left_out}", *(f"· {change}" for change in shown)] if shown else []


def draw_bar(timeline: DeviceTimeline, width: int) -> str:
    """Draw what a device did in so many cells, each as what took most of it."""
    cell_s = timeline.end_s / width
    taken: list[dict[SpanPurpose, float]] = [{} for _ in range(width)]
    for span in timeline.spans:
        for cell, seconds in _spread(span, cell_s, width):
            taken[cell][span.purpose] = taken[cell].get(span.purpose, 0.0) + seconds
    return "".join(MARKS[_find_most(shares, cell_s)] for shares in taken)


def _find_most(shares: Mapping[SpanPurpose, float], cell_s: float) -> SpanPurpose | None:
    """Return what took most of a cell; None where the device was idle."""
    most = max(shares, key=lambda purpose: shares[purpose], default=None)
    return most if most is not None and shares[most] > cell_s - sum(shares.values()) else None


def _spread(span: Span, cell_s: float, width: int) -> Iterator[tuple[int, float]]:
    """Return which cells a span lies in, and how much of each it takes."""
    first, last = int(span.begin_s / cell_s), min(int(span.end_s / cell_s), width - 1)
    for cell in range(first, last + 1):
        yield cell, min(span.end_s, (cell + 1) * cell_s) - max(span.begin_s, cell * cell_s)


def _as_ordered(name: str) -> tuple[str, int, str]:
    """Return what puts cpu:10 behind cpu:9."""
    kind, _, place = name.rpartition(":")
    return (kind, int(place), "") if place.isdecimal() and len(place) < MOST_DIGITS else (name, -1, place)


def _span_as_json(span: Span) -> dict[str, Any]:  # Any: JSON values
    return {
        "study": span.study,
        "purpose": span.purpose.value,
        "trials": list(span.trials),
        "begin_s": span.begin_s,
        "end_s": span.end_s,
    }
