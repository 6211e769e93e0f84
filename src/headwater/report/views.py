"""A whole study on one page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.report.changes import MAX_CHANGES, gather_changes
from headwater.report.numbers import show_count, show_seconds, show_standing
from headwater.report.reading import StoredStudy
from headwater.report.spending_tables import describe_spending, stages_table
from headwater.report.tables import (
    describe_constraints,
    describe_front,
    describe_transfer,
    profile_table,
    show_statuses,
)
from headwater.store import DEVICES, Note, StudyInfo
from headwater.trials import Result

MAX_NOTES = 20
"""So many different notes are shown; each trial's own view has all of its own."""


def study_view(study: StoredStudy) -> RenderableType:
    """A study as the record has it: settings, space, where its trials stand, measurements, notes."""
    parts: list[RenderableType] = [_head(study.info, study.result), "", _space_table(study.info.space)]
    for label, profile in study.profiles.items():
        parts += ["", profile_table(profile, label)]
    if study.result.spending is not None and study.result.spending.stages:
        parts += ["", stages_table(study.result.spending)]
    told = [f"({label}): {profile.reason}" for label, profile in study.profiles.items()]
    told += study.result.start.describe() if study.result.start is not None else []
    notes = [note for note in study.notes if note.kind != DEVICES and not note.text.endswith(tuple(told))]
    if notes:
        parts += ["", Text("notes", style="bold"), _count_notes(notes)]
    if changes := gather_changes(study.notes):
        lines = [Text(f"· {change}") for change in changes[-MAX_CHANGES:]]
        head = f"devices, the last of {show_count(len(changes), 'note')}" if len(changes) > len(lines) else "devices"
        parts += ["", Text(head, style="bold"), *lines]
    return Group(*parts)


def _head(info: StudyInfo, result: Result) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("study", Text(info.name, style="bold"))
    grid.add_row("started", datetime.fromtimestamp(info.created).strftime("%Y-%m-%d %H:%M:%S"))
    goal = "largest" if info.mode == "max" else "smallest"
    grid.add_row("wanted", Text(f"the {goal} {info.metric}"))
    for metric, mode in info.also.items():
        grid.add_row("", Text(f"the {'largest' if mode == 'max' else 'smallest'} {metric}"))
    for text in describe_constraints(result):
        grid.add_row("", text)
    for name, text in describe_transfer(result):
        grid.add_row(name, text)
    grid.add_row("trials", show_statuses(result))
    if result.ranked:
        best = result.ranked[0]
        name = "best" if result.target is None else "best surrogate"
        grid.add_row(name, Text(show_standing(info.metric, result.objective.value_of(best), best.number)))
    if result.also:
        grid.add_row("front", describe_front(result))
    if result.spending is not None:
        grid.add_row("nodes", describe_spending(result.spending))
    grid.add_row("time", Text(show_seconds(sum(trial.seconds for trial in result.trials)) + " in training"))
    settings = {**info.settings, "seed": info.seed}
    grid.add_row("settings", Text(", ".join(f"{key} {value}" for key, value in settings.items() if value is not None)))
    return grid


def _space_table(space: Any) -> Table:  # Any: a JSON value, as a rule the stored rows of a space
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("hyperparameter", style="cyan", no_wrap=True)
    table.add_column("space", overflow="fold")
    rows = [row for row in space if isinstance(row, dict)] if isinstance(space, list) else []
    for row in rows:
        if not all(isinstance(row.get(key), str) for key in ("key", "kind", "text")):
            continue
        text = f"depends on the others ({row['text']})" if row["kind"] == "condition" else row["text"]
        table.add_row(Text(row["key"]), Text(text))
    return table


def _count_notes(notes: Sequence[Note]) -> Table:
    """One line for each different note, with the number of trials it was made on."""
    trials: dict[str, set[int]] = {}
    for note in notes:
        trials.setdefault(note.text, set()).update([] if note.number is None else [note.number])
    lines = Table.grid(padding=(0, 1, 0, 0))
    for text, numbers in list(trials.items())[:MAX_NOTES]:
        lines.add_row("·", Text(f"{text} ({show_count(len(numbers), 'trial')})" if numbers else text))
    if len(trials) > MAX_NOTES:
        lines.add_row("·", f"and {len(trials) - MAX_NOTES} more")
    return lines
