"""A result as plain text, for `print` and the prompt of Python: one screen, and no terminal is asked for its width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from headwater.trials.flat_rows import flatten
from headwater.trials.records import count_statuses, show_status

if TYPE_CHECKING:
    from headwater.trials.records import TrialRecord
    from headwater.trials.result import Result

MOST_ROWS = 10
"""So many of the best trials stand in the table."""
LONGEST_CELL = 24
WIDTH = 100
"""No line is longer: hyperparameters that do not fit are counted, and other lines are cut."""
MOST_REASONS = 4
"""So many lines say why a run ended early."""
MOST_ON_FRONT = 12


def show_result(result: Result) -> str:
    """Return a study's result in at most 25 lines: how its trials stand, and the best of them as a table."""
    counts = count_statuses(result.trials, is_over=result.is_over)
    states = ", ".join(f"{count} {status}" for status, count in counts.items())
    lines = [f"study {result.study}: {len(result.trials)} trials{f' ({states})' if states else ''}"]
    if result.target is not None:
        lines.append(
            f"target: {result.metric} {_show(result.target.value(result.metric))}, {result.target.epochs} epochs"
        )
    if result.constraints:
        wanted = " and ".join(map(str, result.constraints))
        lines.append(f"{len(result.feasible)} of {len(result.ranked)} trials keep to {wanted}")
    if result.also:
        lines.append(_show_front(result))
    shown = result.ranked[:MOST_ROWS]
    if shown:
        lines += ["", *_lay_out(result, shown)]
    else:
        lines.append(f"no trial has a finite {result.metric}")
    if len(result.ranked) > len(shown):
        lines.append(f"and {len(result.ranked) - len(shown)} more")
    if result.ended_early:
        lines += ["", *wrap(f"ended early: {result.ended_early}", WIDTH, max_lines=MOST_REASONS, placeholder=" …")]
    return "\n".join(_cut(line, WIDTH) for line in lines)


def _show_front(result: Result) -> str:
    numbers = [str(trial.number) for trial in result.front()]
    more = f" and {len(numbers) - MOST_ON_FRONT} more" if len(numbers) > MOST_ON_FRONT else ""
    trials = f"trials {', '.join(numbers[:MOST_ON_FRONT])}{more}" if numbers else "none yet"
    return f"front of {', '.join((result.metric, *result.also))}: {trials}"


def _lay_out(result: Result, trials: Sequence[TrialRecord]) -> list[str]:
    """Return the table, with as many hyperparameters as fit; those come first in which trials differ."""
    rows = [["rank", "trial", result.metric, *result.also]]
    ends = [["epochs", "status"]]
    for rank, trial in enumerate(trials, start=1):
        values = [result.objective.value_of(trial), *(trial.value(name) for name in result.also)]
        rows.append([str(rank), str(trial.number), *map(_show, values)])
        ends.append([str(trial.epochs), show_status(trial.status, is_over=result.is_over)])
    configs = [dict(flatten(trial.config)) for trial in trials]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    keys.sort(key=lambda key: len({repr(config.get(key)) for config in configs}) == 1)
    columns = [[_cut(key, LONGEST_CELL), *(_show(config.get(key, "")) for config in configs)] for key in keys]
    while columns and _measure([*zip(*rows, strict=True), *columns, *zip(*ends, strict=True)]) > WIDTH:
        columns.pop()
    lines = _set_apart([[*row, *cells, *end] for row, end, *cells in zip(rows, ends, *columns, strict=True)])
    if num_left_out := len(keys) - len(columns):
        lines.append(f"without {num_left_out} of {len(keys)} hyperparameters; result.best.config has all")
    return lines


def _measure(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def _set_apart(rows: Sequence[Sequence[str]]) -> list[str]:
    """Set columns two spaces apart, the last at the left and all others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]) for row in rows]


def _show(value: object) -> str:
    return _cut(f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value), LONGEST_CELL)


def _cut(text: str, longest: int) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
