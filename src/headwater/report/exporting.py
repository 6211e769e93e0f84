"""A study as plain rows, for other programs: CSV, JSON, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, TypeAlias

from headwater.errors import StudyError
from headwater.report.reading import make_strict
from headwater.report.tables import flatten
from headwater.trials import Report, Result, TrialRecord

Row: TypeAlias = dict[str, Any]  # Any: JSON values, but for floats that are not finite
"""One trial or one report; all rows of a table have the same columns, and None where there is nothing."""

CONFIG, METRICS, NOTE = "config.", "metrics.", "note."
"""Before the names of hyperparameters, metrics and notes: any may be called `number`, `epochs` or like another."""


class Format(StrEnum):
    """What a table can be written as."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def to_records(result: Result, *, history: bool = False) -> list[Row]:
    """Return one row for each trial, or with `history` one for each report, for instance for a pandas.DataFrame.

    A hyperparameter is `config.` and its dotted key, a metric `metrics.` and its name; of an error, the last line.
    """
    rows = [_describe_trial(trial) for trial in result.trials]
    if history:
        rows = [_describe_report(report) for trial in result.trials for report in trial.history]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = sorted(names, key=_find_place)
    return [{name: row.get(name) for name in columns} for row in rows]


def encode_records(rows: Sequence[Row], form: Format) -> bytes:
    """Write rows as a file of this format.

    Raises:
        StudyError: Parquet was asked for without pyarrow.
    """
    encode = {Format.CSV: _encode_csv, Format.JSON: _encode_json, Format.PARQUET: _encode_parquet}
    return encode[form](rows)


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


def _encode_csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else ["number"])
    writer.writerows([_as_text(value) for value in row.values()] for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def _encode_json(rows: Sequence[Row]) -> bytes:
    lines = [json.dumps(make_strict(row), allow_nan=False, ensure_ascii=False) for row in rows]
    return ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode(errors="backslashreplace")


def _encode_parquet(rows: Sequence[Row]) -> bytes:
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    arrays = {}
    for name, values in columns.items():
        kind = _find_kind(values)
        # A column has one type: where its values have several, they are text.
        plain = [None if value is None else _as_text(value) if kind is str else kind(value) for value in values]
        arrays[name] = pyarrow.array(plain, type=kinds[kind])
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays), file)
    return file.getvalue()


def require_pyarrow() -> None:
    """Refuse to go on without what writes Parquet."""
    if find_spec("pyarrow") is None:
        raise StudyError("Parquet needs pyarrow; pip install 'headwater[parquet]', or export as csv or json")


def _find_kind(values: Sequence[Any]) -> type:  # Any: as for Row
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return int
    if kinds and kinds <= {int, float}:
        return float
    return bool if kinds == {bool} else str


def _as_text(value: Any) -> Any:  # Any: as for Row
    """Leave text and nothing alone, and write anything else as JSON would, in which Python's reader takes NaN too."""
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
