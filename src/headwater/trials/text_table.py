"""A result as plain text, for `print`: no terminal is asked for its width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.space import Config, show_plain
from headwater.trials.records import count_statuses

if TYPE_CHECKING:
    from headwater.trials.records import TrialRecord
    from headwater.trials.result import Result

MOST_ROWS = 10
"""So many of the best trials stand in the table."""
LONGEST_CELL = 24


def show_result(result: Result) -> str:
    """Return what a study found: a line about its trials, and the best of them as a table."""
    states = ", ".join(f"{count} {status}" for status, count in count_statuses(result.trials).items())
    lines = [f"study {result.study}: {len(result.trials)} trials{f' ({states})' if states else ''}"]
    if result.target is not None:
        lines.append(
            f"target: {result.metric} {_show(result.target.value(result.metric))}, {result.target.epochs} epochs"
        )
    if result.constraints:
        wanted = " and ".join(map(str, result.constraints))
        lines.append(f"{len(result.feasible)} of {len(result.ranked)} trials keep to {wanted}")
    shown = result.ranked[:MOST_ROWS]
    if shown:
        lines += ["", *_lay_out(_list_rows(result, shown))]
    else:
        lines.append(f"no trial has a finite {result.metric}")
    if len(result.ranked) > len(shown):
        lines.append(f"and {len(result.ranked) - len(shown)} more")
    if result.ended_early:
        lines += ["", f"ended early: {result.ended_early}"]
    return "\n".join(lines)


def _list_rows(result: Result, trials: Sequence[TrialRecord]) -> list[list[str]]:
    configs = [dict(_flatten(trial.config)) for trial in trials]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    rows = [["rank", "trial", result.metric, *result.also, *keys, "epochs", "status"]]
    for rank, (trial, config) in enumerate(zip(trials, configs, strict=True), start=1):
        cells = [_show(config.get(key, "")) for key in keys]
        values = [result.objective.value_of(trial), *(trial.value(name) for name in result.also)]
        rows.append([str(rank), str(trial.number), *map(_show, values), *cells, str(trial.epochs), str(trial.status)])
    return rows


def _lay_out(rows: Sequence[Sequence[str]]) -> list[str]:
    """Set columns two spaces apart, the last at the left and all others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]) for row in rows]


def _flatten(config: Config, parent: str = "") -> Iterator[tuple[str, Any]]:  # Any: as for Config
    for key, value in config.items():
        name = f"{parent}.{key}" if parent else key
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, name)
        else:
            yield name, show_plain(value)


def _show(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
