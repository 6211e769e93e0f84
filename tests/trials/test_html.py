"""How values show themselves in a notebook."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.page_studies import CONTROL, HOSTILE, LONG

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Silence
from headwater.trials import Report, Result, Status, TrialRecord


def record(number: int, value: float) -> TrialRecord:
    config = {HOSTILE: HOSTILE, "control": CONTROL, "long": LONG}
    history = (Report(number=number, epoch=1, metrics={"loss": value}),)
    return TrialRecord(number=number, config=config, status=Status.FAILED, history=history, error=f"x\n{HOSTILE}\n")


def test_hostile_values_are_text() -> None:
    result = Result(study=HOSTILE, metric=HOSTILE, mode="min", trials=(record(0, math.nan),), storage="")
    for html in (record(0, math.inf)._repr_html_(), result._repr_html_()):
        assert "<img" not in html
        assert "<script" not in html
        assert "&lt;img" in html
        assert "\x07" not in html
        assert len(html) < 3_000


def train(trial: hw.Trial) -> None:
    for _ in trial.epochs(2):
        trial.report(loss=trial.config["lr"])


def test_a_result_shows_its_best_trials_and_saves_its_report(tmp_path: Path) -> None:
    storage = tmp_path / "record.db"
    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, storage=storage)
    assert "uniform(0, 1)" in study._repr_html_()
    result = study.run(3, watcher=Silence())
    assert f">{result.best.value('loss'):.4g}<" in result._repr_html_()
    result.save_report(tmp_path / "report.html")
    assert '"num_trials":3' in (tmp_path / "report.html").read_text()


def test_a_study_in_memory_has_no_report() -> None:
    result = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, storage=None).run(
        2, watcher=Silence()
    )
    with pytest.raises(StudyError, match="run it with a storage"):
        result.save_report("report.html")
