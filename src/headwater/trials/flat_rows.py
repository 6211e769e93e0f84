"""A result as rows of plain values, one for each trial or for each report, for tables of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.space import Config, show_plain

if TYPE_CHECKING:
    from headwater.trials.records import Report, TrialRecord
    from headwater.trials.result import Result

Row: TypeAlias = dict[str, Any]  # Any: JSON values, but for floats that are not finite
"""One trial or one report; all rows of a table have the same columns, and None where there is nothing."""

CONFIG, METRICS, NOTE = "config.", "metrics.", "note."
"""Before the names of hyperparameters, metrics and notes: any may be called `number`, `epochs` or like another."""


def to_records(result: Result, *, history: bool = False) -> list[Row]:
    """Return one row for each trial, or with `history` one for each report.

    A hyperparameter is `config.` and its dotted key, a metric `metrics.` and its name; of an error, the last line.
    """
    rows = [_describe_trial(trial) for trial in result.trials]
    if history:
        rows = [_describe_report(report) for trial in result.trials for report in trial.history]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = sorted(names, key=_find_place)
    return [{name: row.get(name) for name in columns} for row in rows]


def flatten(config: Config, parent: str = "") -> Iterator[tuple[str, Any]]:  # Any: JSON values
    """Yield the values of a configuration by dotted key, readable."""
    for key, value in config.items():
        name = f"{parent}.{key}" if parent else key
        if isinstance(value, Mapping) and value:
            yield from flatten(value, name)
        else:
            yield name, show_plain(value)


def describe_error(error: str | None) -> str | None:
    """Return the last line of a traceback."""
    return error.rstrip().rpartition("\n")[2] if error and error.strip() else None


def _describe_trial(trial: TrialRecord) -> Row:
    return {
        "number": trial.number,
        "status": trial.status.value,
        "epochs": trial.epochs,
        "seconds": trial.seconds,
        **{f"{CONFIG}{key}": value for key, value in flatten(trial.config)},
        **{f"{METRICS}{name}": value for name, value in trial.metrics.items()},
        **{f"{NOTE}{name}": value for name, value in trial.attributes.items()},
        "error": describe_error(trial.error),
    }


def _describe_report(report: Report) -> Row:
    metrics = {f"{METRICS}{name}": value for name, value in report.metrics.items()}
    return {"number": report.number, "epoch": report.epoch, **metrics}


def _find_place(name: str) -> int:
    """Place hyperparameters before metrics and the error last, also where a later trial brings in new ones."""
    places = [place for place, prefix in enumerate((CONFIG, METRICS, NOTE), start=1) if name.startswith(prefix)]
    return 4 if name == "error" else next(iter(places), 0)
