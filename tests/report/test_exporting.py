"""Rows for other programs hold everything, and each format can be read back."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from typing import Any

import pytest

from headwater.errors import StudyError
from headwater.report.exporting import Format, encode_records, to_records
from headwater.trials import Report, Result, Status, TrialRecord

CONFIGS: list[dict[str, Any]] = [
    {"lr": 0.1, "opt": {"kind": dict, "sizes": [1, 2]}, "epochs": 1, "loss": "mse", "fast": True},
    {"lr": 1, "opt": {"kind": None, "sizes": [3]}, "epochs": "many", "fast": False, "late": "ä,\n"},
]
TRIALS = (
    TrialRecord(
        number=0,
        config=CONFIGS[0],
        status=Status.COMPLETED,
        history=tuple(Report(number=0, epoch=epoch, metrics={"loss": 1 / epoch, "f": 0.5}) for epoch in (1, 2, 3)),
        seconds=1.5,
    ),
    TrialRecord(
        number=1,
        config=CONFIGS[1],
        status=Status.FAILED,
        history=(Report(number=1, epoch=1, metrics={"loss": math.nan, "extra": math.inf}),),
        error="Traceback:\n  File x\nValueError: no data\n",
    ),
)
RESULT = Result(study="digits-1", metric="loss", mode="min", trials=TRIALS, storage="memory")


def test_a_trial_is_a_row_with_hyperparameters_and_last_metrics_apart() -> None:
    first, second = to_records(RESULT)
    assert first == {
        "number": 0, "status": "completed", "epochs": 3, "seconds": 1.5, "config.lr": 0.1, "config.opt.kind": "dict",
        "config.opt.sizes": [1, 2], "config.epochs": 1, "config.loss": "mse", "config.fast": True, "config.late": None,
        "metrics.loss": 1 / 3, "metrics.f": 0.5, "metrics.extra": None, "error": None,
    }  # fmt: skip
    assert list(first) == list(second)
    assert second["error"] == "ValueError: no data"
    assert math.isnan(second["metrics.loss"])


def test_with_history_a_report_is_a_row() -> None:
    rows = to_records(RESULT, history=True)
    assert [(row["number"], row["epoch"], row["metrics.f"]) for row in rows] == [
        (0, 1, 0.5), (0, 2, 0.5), (0, 3, 0.5), (1, 1, None),
    ]  # fmt: skip


def test_csv_keeps_every_digit_and_every_character() -> None:
    text = encode_records(to_records(RESULT), Format.CSV).decode()
    first, second = csv.DictReader(io.StringIO(text))
    assert float(first["metrics.loss"]) == 1 / 3
    assert (second["config.late"], second["config.opt.kind"], second["metrics.loss"]) == ("ä,\n", "", "nan")
    assert json.loads(first["config.opt.sizes"]) == [1, 2]


def test_json_is_strict() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = json.loads(encode_records(to_records(RESULT), Format.JSON), parse_constant=refuse)
    assert rows[0] == to_records(RESULT)[0]
    assert (rows[1]["metrics.loss"], rows[1]["metrics.extra"]) == (None, None)


def test_parquet_gives_each_column_one_type() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = parquet.read_table(io.BytesIO(encode_records(to_records(RESULT), Format.PARQUET)))
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert (kinds["number"], kinds["config.lr"], kinds["config.fast"]) == ("int64", "double", "bool")
    assert table.column("config.epochs").to_pylist() == ["1", "many"]
    assert table.column("config.opt.sizes").to_pylist() == ["[1, 2]", "[3]"]
    assert math.isnan(table.column("metrics.loss").to_pylist()[1])


def test_without_pyarrow_the_message_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("headwater.report.exporting.find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"pip install 'headwater\[parquet\]'"):
        encode_records(to_records(RESULT), Format.PARQUET)


@pytest.mark.parametrize("form", [Format.CSV, Format.JSON])
def test_a_study_without_trials_is_an_empty_table(form: Format) -> None:
    empty = Result(study="s", metric="loss", mode="min", trials=(), storage="memory")
    assert encode_records(to_records(empty), form).decode().strip() in ("number", "[]")
