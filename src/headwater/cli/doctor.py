"""The verb `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from headwater.cli.terminal import (
    FAILED,
    JsonOption,
    StorageOption,
    open_out,
    print_json,
    telling_errors,
)
from headwater.report.numbers import show_bytes
from headwater.settings import DEFAULT_STORAGE

if TYPE_CHECKING:
    from headwater.doctor import Check
    from headwater.trials import Profile

MeasureOption = Annotated[
    bool, typer.Option("--measure", help="Also train three usual models for about a minute, in lanes and one by one.")
]


def doctor(
    storage: StorageOption = DEFAULT_STORAGE, measure: MeasureOption = False, as_json: JsonOption = False
) -> None:
    """Check that Headwater can work here, and say what to do where it cannot."""
    with telling_errors():
        from headwater.doctor import Level, examine

        console = open_out()
        checks = []
        for check in examine(storage):
            checks.append(check)
            if not as_json:
                console.print(_draw_check(check))
        has_failed = any(check.level is Level.FAIL for check in checks)
        found: dict[str, Any] = {"checks": [asdict(check) for check in checks]}  # Any: JSON values
        if measure and not has_failed:
            from headwater.train.sample_models import measure_samples, name_measured_device

            profiles = dict(measure_samples())
            found |= {"device": name_measured_device(), "models": list(map(_describe_profile, profiles.items()))}
            if not as_json:
                console.print(f"\nTraining steps per second on {found['device']}, one by one and in lanes:")
                console.print(_draw_profiles(profiles))
                if any(profile.is_cut for profile in profiles.values()):
                    console.print("There was no time for larger groups; measure while nothing else runs here.")
        if as_json:
            print_json(found)
        if has_failed:
            raise typer.Exit(FAILED)


def _draw_check(check: Check) -> Text:
    styles = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
    text = Text.assemble((f"{check.level:<5}", styles[check.level]), f"{check.name:<12}", check.text)
    return text.append(f"\n{'':<17}→ {check.cure}", style="bold") if check.cure else text


def _draw_profiles(profiles: Mapping[str, Profile]) -> Table:
    """Show each model trained one by one and in the largest group that pays."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "one by one", "memory", "lanes", "in lanes", "memory", "speed"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for name, profile in profiles.items():
        sizes = {item.num_lanes: item for item in profile.measurements}
        if profile.num_lanes not in sizes or 1 not in sizes:
            table.add_row(name, "", "", "", "", "", profile.reason)
            continue
        alone, chosen = sizes[1], sizes[profile.num_lanes]
        cells = [
            (f"{1 / item.seconds_per_lane_step:,.0f}/s", "" if item.peak_bytes is None else show_bytes(item.peak_bytes))
            for item in (alone, chosen)
        ]
        speed = f"{alone.seconds_per_lane_step / chosen.seconds_per_lane_step:.1f}x"
        table.add_row(name, *cells[0], str(profile.num_lanes), *cells[1], speed)
    return table


def _describe_profile(named: tuple[str, Profile]) -> dict[str, Any]:  # Any: JSON values
    name, profile = named
    sizes = [
        {"lanes": item.num_lanes, "steps_per_s": 1 / item.seconds_per_lane_step, "memory_bytes": item.peak_bytes}
        for item in profile.measurements
    ]
    described = {"model": name, "lanes": profile.num_lanes, "reason": profile.reason, "is_cut": profile.is_cut}
    return {**described, "sizes": sizes}
