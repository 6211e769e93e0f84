"""Tables of a service: its studies, and its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headwater.report.tables import STATE_STYLES

LONGEST_REASON = 60


def queue_table(studies: Sequence[Mapping[str, Any]]) -> RenderableType:  # Any: JSON values
    """The studies of a service, one row each."""
    if not studies:
        return Text("no study runs or waits", style="dim")
    table = _open_table(
        "study", "user", "state", "priority", "devices", "trials", "best", "device-seconds", "submitted", "why"
    )
    for one in studies:
        progress = one["progress"]
        counts = progress.get("statuses") or {}
        done = sum(counts.values()) - counts.get("running", 0)
        best = progress.get("best")
        state = f"{one['state']}, to {one['wish']}" if one["wish"] else one["state"]
        table.add_row(
            Text(one["id"], style="bold"),
            one["user"],
            Text(state, style=STATE_STYLES.get(one["state"], "")),
            str(one["priority"]),
            str(one["num_devices"]),
            f"{done}/{progress.get('num_trials') or '?'}" if counts else "",
            Text("" if best is None else f"{progress['metric']} {_show(best['value'])} (trial {best['number']})"),
            f"{one['device_seconds']:,.0f}",
            datetime.fromtimestamp(one["created"]).strftime("%Y-%m-%d %H:%M"),
            Text(_shorten(one["reason"])),
        )
    return table


def tokens_table(tokens: Sequence[Mapping[str, str]]) -> RenderableType:
    """The tokens of a service, one row each; never a token itself."""
    if not tokens:
        return Text("there is no token", style="dim")
    names = ("id", "user", "role", "created", "note")
    table = _open_table(*names)
    for one in tokens:
        table.add_row(*(Text(one[name]) for name in names))
    return table


def _open_table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for name in names:
        right = name in ("priority", "devices", "trials", "device-seconds")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def _show(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _shorten(reason: str) -> str:
    line = reason.strip().splitlines()[-1] if reason.strip() else ""
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
