"""A study as plain rows, for other programs: CSV, JSON, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Any

from headwater.errors import StudyError
from headwater.report.reading import make_strict
from headwater.trials.flat_rows import Row, to_records

__all__ = ["Format", "encode_records", "require_pyarrow", "to_records"]


class Format(StrEnum):
    """What a table can be written as."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def encode_records(rows: Sequence[Row], form: Format) -> bytes:
    """Write rows as a file of this format.

    Raises:
        StudyError: Parquet was asked for without pyarrow.
    """
    encode = {Format.CSV: _encode_csv, Format.JSON: _encode_json, Format.PARQUET: _encode_parquet}
    return encode[form](rows)


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
