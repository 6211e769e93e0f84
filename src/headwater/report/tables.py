"""What a study found, as tables and text for a terminal: pure functions of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.report.layout import Column, TrialTable
from headwater.report.numbers import (
    draw_sparkline,
    show_bytes,
    show_cells,
    show_column,
    show_count,
    show_number,
    show_seconds,
    show_standing,
)
from headwater.report.spending_tables import describe_spending
from headwater.space import Config, show_plain
from headwater.store import StudyInfo
from headwater.trials import DeviceGains, Profile, Report, Result, Status, TrialRecord
from headwater.trials.flat_rows import flatten
from headwater.trials.records import count_statuses, show_status

STYLES: Mapping[Status, str] = {
    Status.RUNNING: "cyan",
    Status.PAUSED: "yellow",
    Status.COMPLETED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "red",
}
STATE_STYLES: Mapping[str, str] = {"running": "cyan", "killed": "red", "unfinished": "yellow", "done": "green"}
MAX_METRICS = 4
"""So many metrics beside the one that decides stand in a table; a trial's own view has them all."""
MOST_TRIALS = 12
"""So many trials of a device stand in a table."""
MAX_EPOCHS = 12
"""So many epochs of a trial's history stand in a table, unless all are asked for."""


def best_table(result: Result, count: int = 10) -> RenderableType:
    """The best trials: one row each where the terminal is wide enough, else one column each."""
    ranked = result.ranked[:count]
    if not ranked:
        return Text(f"No trial has a finite {result.metric} yet.", style="yellow")
    names = list(dict.fromkeys(name for trial in ranked for name in trial.metrics if name != result.metric))
    columns = [
        Column("rank", [str(rank) for rank in range(1, len(ranked) + 1)], style="dim"),
        Column("trial", [str(trial.number) for trial in ranked]),
        Column(result.metric, show_column([result.objective.value_of(trial) for trial in ranked]), style="bold"),
        *(Column(name, show_column([trial.value(name) for trial in ranked])) for name in names[:MAX_METRICS]),
        *_config_columns(ranked, result.trials),
        *_constraint_column(result, ranked),
        Column("epochs", [str(trial.epochs) for trial in ranked]),
        Column("status", [_show_status(trial, result.is_over) for trial in ranked], is_text=True),
    ]
    return TrialTable(columns)


def _show_status(trial: TrialRecord, is_over: bool) -> Text:
    return Text(show_status(trial.status, is_over=is_over), STYLES[trial.status])


def describe_constraints(result: Result) -> Iterator[Text]:
    """Say of each constraint how many trials keep to it, a line each."""
    sound = [trial for trial in result.trials if trial.status is not Status.FAILED and trial.history]
    for one in result.constraints:
        num_kept = sum(one.violation(trial.metrics) <= 0 for trial in sound)
        num_silent = sum(one.metric not in trial.metrics for trial in sound)
        text = f"{one}: kept by {num_kept} of {show_count(len(sound), 'trial')}"
        silence = f"; {num_silent} did not report {one.metric} at last" if num_silent else ""
        yield Text(text + silence, style="yellow" if not num_kept else "")


def summary(result: Result, look: str | None) -> RenderableType:
    """What a run did and how fast, and where its record lies; `look` shows it, None where it is not kept."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim")
    lines.add_column(overflow="fold")
    lines.add_row("trials", show_statuses(result))
    for text in describe_constraints(result):
        lines.add_row("wanted", text)
    lines.add_row("time", _show_time(result))
    if result.num_lane_steps:
        lines.add_row("lanes", _show_lanes(result))
    if result.device_gains is not None:
        lines.add_row("devices", Text(_show_gains(result.device_gains)))
    if result.spending is not None:
        lines.add_row("nodes", describe_spending(result.spending))
    for name, text in describe_transfer(result):
        lines.add_row(name, text)
    lines.add_row("record", Text(result.storage if look else "in memory only, and gone with this process"))
    if look:
        lines.add_row("look", Text(look, style="bold"))
    return lines


def _show_gains(gains: DeviceGains) -> str:
    word = "gained" if gains.seconds >= 0 else "lost"
    changes = show_count(gains.num_changes, "change")
    return f"{changes} {word} {show_seconds(abs(gains.seconds))} in all; the last: {gains.last}"


def describe_transfer(result: Result) -> Iterator[tuple[str, Text]]:
    """What became of the target, and how far its surrogates can be trusted; nothing where there were none."""
    if result.target is not None:
        target = result.target
        text = Text(f"{result.metric} {show_number(target.value(result.metric))}", style="bold green")
        values = ", ".join(f"{key} {show_plain(value)}" for key, value in flatten(target.config))
        yield (
            "target",
            text.append(f" after {show_count(target.epochs, 'epoch')} with {values}", style="not bold default"),
        )
    if result.trust is not None:
        yield "trust", Text(str(result.trust))
    for line in result.start.describe() if result.start is not None else ():
        yield "start", Text(line)


def describe_front(result: Result) -> Text:
    """The trials that no other beats in all metrics of the study."""
    numbers = [str(trial.number) for trial in result.front()]
    more = f" and {len(numbers) - MOST_TRIALS} more" if len(numbers) > MOST_TRIALS else ""
    listed = f"{', '.join(numbers[:MOST_TRIALS])}{more}" if numbers else "none yet"
    return Text(f"{show_count(len(numbers), 'trial')} of {', '.join((result.metric, *result.also))}: {listed}")


def trial_view(record: TrialRecord, *, all_epochs: bool = False, is_over: bool = False) -> RenderableType:
    """Everything about one trial: configuration, history, notes, and the whole traceback if it failed.

    Of a long history there are some epochs from the first to the last, and how many are left out; or all of it.
    `is_over` is that of the result: a trial that its search left paused was stopped early.
    """
    head = Text.assemble(
        (f"trial {record.number}", "bold"), "  ", _show_status(record, is_over),
        f"  {show_count(record.epochs, 'epoch')}, {show_seconds(record.seconds)}",
    )  # fmt: skip
    parts: list[RenderableType] = [head, "", _config_grid(record.config)]
    if record.history:
        shown = record.history if all_epochs else _pick_epochs(record.history)
        parts += ["", _curves(record), "", _history_table(shown, record.history)]
        if num_left_out := len(record.history) - len(shown):
            left_out = f"left out: {num_left_out:,} of {show_count(len(record.history), 'epoch')}"
            parts += [Text(f"{left_out}; see them with --all-epochs", style="dim")]
    if record.attributes:
        parts += ["", _config_grid(record.attributes)]
    if record.notes:
        notes = Table.grid(padding=(0, 1, 0, 0))
        for note in dict.fromkeys(record.notes):
            notes.add_row("·", Text(note))
        parts += ["", notes]
    if record.error:
        # Lines of code are left to the terminal to wrap, so that they can be copied whole.
        body, _, last = record.error.rstrip().rpartition("\n")
        parts += ["", Text(body, no_wrap=True, overflow="ignore")]
        parts += [Text(last, style="bold red", no_wrap=True, overflow="ignore")]
    return Group(*parts)


def studies_table(studies: Sequence[tuple[StudyInfo, Result, str]]) -> RenderableType:
    """The studies of a record, one row each, with the state that each is in; long names take several lines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for name in ("study", "state", "started", "trials", "failed", "best"):
        justify: JustifyMethod = "right" if name in ("trials", "failed") else "left"
        table.add_column(name, justify=justify, no_wrap=name not in ("study", "best"), overflow="fold")
    for info, result, state in studies:
        done = sum(trial.status is not Status.RUNNING for trial in result.trials)
        failed = sum(trial.status is Status.FAILED for trial in result.trials)
        table.add_row(
            Text(info.name, style="bold"),
            Text(state, style=STATE_STYLES.get(state, "")),
            datetime.fromtimestamp(info.created).strftime("%Y-%m-%d %H:%M"),
            f"{done}/{max(len(result.trials), info.settings.get('num_trials') or 0)}",
            Text(str(failed), style="red" if failed else "dim"),
            show_best(result),
        )
    return table


def show_best(result: Result) -> Text:
    """The number that a study is about: the target's where there is one, else that of the best trial."""
    best = result.ranked[0] if result.ranked else None
    text = show_standing(result.metric, result.objective.value_of(best), best.number) if best else "none yet"
    if result.target is None:
        return Text(text)
    target = f"{result.metric} {show_number(result.target.value(result.metric))} (target)"
    return Text(target).append(f"; best surrogate {text}" if best else "", style="dim")


def devices_table(devices: Sequence[Mapping[str, Any]]) -> RenderableType:  # Any: JSON values
    """The devices of a study that runs, one row each: what each does, and whether it comes or goes."""
    table = _plain_table()
    for name in ("device", "does", "study", "trials", "wish"):
        table.add_column(name, no_wrap=name == "device")
    for one in devices:
        more = len(one["trials"]) - MOST_TRIALS
        trials = [*map(str, one["trials"][:MOST_TRIALS]), *([f"and {more} more"] if more > 0 else [])]
        wish = ("" if one["is_there"] else "comes") if one["is_wanted"] else "goes when what is there has left"
        style = "dim" if one["does"] == "idle" else ""
        cells = (one["device"], Text(one["does"], style=style), one["study"] or "", ", ".join(trials), wish)
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def bubbles_table(stages: Sequence[Mapping[str, Any]]) -> RenderableType:  # Any: JSON values
    """The stages of a pipeline that are lent, one row each: where each trains, and what it leaves."""
    table = _plain_table()
    for name in ("stage", "process", "device", "cores", "steps", "waits", "memory left"):
        table.add_column(name, justify="right" if name in ("steps", "waits", "memory left") else "left")
    for one in stages:
        memory = "unknown" if one["memory_bytes"] is None else show_bytes(one["memory_bytes"])
        where = (f"{one['stage']} of {one['num_stages']}", str(one["pid"]), one["device"])
        table.add_row(*where, ", ".join(map(str, one["cores"])), f"{one['steps']:,}", f"{one['waits']:.0%}", memory)
    return table


def profile_table(profile: Profile, label: str = "") -> RenderableType:
    """What was measured of each number of lanes, the chosen one marked, and why it was chosen."""
    head = profile_line(profile, label)
    if not profile.measurements:
        return head
    table = _plain_table()
    for name in ("", "lanes", "time per lane-step", "speed", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    alone = profile.seconds_alone
    for item in profile.measurements:
        is_chosen = item.num_lanes == profile.num_lanes
        table.add_row(
            "→" if is_chosen else "",
            str(item.num_lanes),
            show_seconds(item.seconds_per_lane_step),
            f"{alone / item.seconds_per_lane_step:.1f}x" if alone else "",
            "" if item.peak_bytes is None else show_bytes(item.peak_bytes),
            style="bold" if is_chosen else "",
        )
    return Group(head, table)


def profile_line(profile: Profile, label: str = "") -> Text:
    """How many lanes were chosen, and why."""
    whose = f" ({label})" if label else ""
    return Text.assemble((f"{show_count(profile.num_lanes, 'lane')} in a group{whose}", "bold"), f": {profile.reason}")


def show_statuses(result: Result) -> Text:
    """How many trials there are, and how many of each status."""
    styles = {show_status(status, is_over=result.is_over): style for status, style in STYLES.items()}
    text = Text(f"{len(result.trials)}")
    for place, (status, count) in enumerate(count_statuses(result.trials, is_over=result.is_over).items()):
        text.append(": " if place == 0 else ", ").append(f"{count} {status}", style=styles.get(status, ""))
    return text


def _config_columns(ranked: Sequence[TrialRecord], trials: Sequence[TrialRecord]) -> list[Column]:
    """A column for each hyperparameter in which the trials of the study differ; all of them if there is one trial."""
    values: dict[str, set[str]] = {}
    for trial in trials:
        for key, value in flatten(trial.config):
            values.setdefault(key, set()).add(repr(value))
    wanted = [key for key, seen in values.items() if len(seen) > 1 or len(trials) == 1]
    flat = [dict(flatten(trial.config)) for trial in ranked]
    columns = []
    for key in wanted:
        cells = [config.get(key, "") for config in flat]
        is_text = any(isinstance(cell, str | list | None) for cell in cells)
        columns.append(Column(key, show_cells(cells), style="cyan", is_text=is_text))
    return columns


def _constraint_column(result: Result, ranked: Sequence[TrialRecord]) -> list[Column]:
    """A column that says which trials keep to the constraints, where there are any."""
    if not result.constraints:
        return []
    cells = [Text("yes", "green") if result.objective.is_kept(trial) else Text("no", "red") for trial in ranked]
    return [Column("feasible", cells, is_text=True)]


def _show_time(result: Result) -> Text:
    rate = f", {result.num_lane_steps / result.seconds:,.0f} lane-steps/s" if result.num_lane_steps else ""
    return Text(f"{show_seconds(result.seconds)}{rate}")


def _show_lanes(result: Result) -> Text:
    *sizes, largest = sorted({profile.num_lanes for profile in result.profiles}) or [0]
    counts = f"{', '.join(map(str, sizes))} or {largest}" if sizes else str(largest)
    groups = f"trained {counts} lanes at a time" if largest else "no numbers of lanes were compared"
    groups = "trained one lane at a time" if counts == "1" else groups
    if result.speedup is None or result.seconds_one_by_one is None:
        return Text(f"{groups}; how long one by one would have taken was not measured")
    # The estimate holds the optimizer steps alone, while this run also measured, evaluated and perhaps repeated some.
    basis = f"the steps alone take {show_seconds(result.seconds_one_by_one)} in groups of one, as measured"
    if result.speedup < 1:
        return Text(f"{groups}; {basis}")
    text = Text(f"{groups}: ")
    text.append(f"{show_number(result.speedup, 2)} times faster than one by one", style="bold green")
    return text.append(f" ({basis})")


def _config_grid(config: Config) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in flatten(config):
        grid.add_row(Text(key), Text(show_number(value, 6) if isinstance(value, float) else str(value)))
    return grid


def _curves(record: TrialRecord) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name in dict.fromkeys(name for report in record.history for name in report.metrics):
        values = [float(report.metrics.get(name, math.nan)) for report in record.history]
        grid.add_row(
            Text(name), Text(draw_sparkline(values), "green"), f"{show_number(values[0])} → {show_number(values[-1])}"
        )
    return grid


def _pick_epochs(history: Sequence[Report]) -> Sequence[Report]:
    """Return at most MAX_EPOCHS reports, evenly from the first to the last."""
    if len(history) <= MAX_EPOCHS:
        return history
    return [history[place * (len(history) - 1) // (MAX_EPOCHS - 1)] for place in range(MAX_EPOCHS)]


def _history_table(reports: Sequence[Report], history: Sequence[Report]) -> Table:
    """A row for each of these reports, and a column for each metric of the whole history."""
    names = list(dict.fromkeys(name for report in history for name in report.metrics))
    table = _plain_table()
    for name in ("epoch", *names):
        table.add_column(Text(name), justify="right")
    columns = [show_column([float(report.metrics.get(name, math.nan)) for report in reports]) for name in names]
    for report, *cells in zip(reports, *columns, strict=True):
        table.add_row(str(report.epoch), *cells)
    return table


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
