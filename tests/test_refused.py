"""A run that is refused leaves no study behind, and one that is ended by a fault says so in one line, with a status."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import CannotScaleError, StudyError
from headwater.store import engine, open_store

SCRIPT = """
import headwater as hw
{before}
def train(trial):
    for epoch in trial.epochs(3):
        {inside}
        trial.report(loss=trial.config["lr"])
study = hw.Study(train, space={{"lr": hw.uniform(0, 1)}}, metric="loss", lanes=1, callbacks=[{callbacks}])
"""
CALLBACK = """
class Unplug(hw.Callback):
    def on_reports(self, reports):
        if {condition}:
            raise ConnectionError("no server")
import os
"""


def names_in(path: Path) -> list[str]:
    with open_store(path) as store:
        return [info.name for info in store.studies()]


def test_a_metric_that_is_never_reported_leaves_no_study(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        trial.report(accuracy=1.0)

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=tmp_path / "a.db", lanes=1)
    with pytest.raises(StudyError, match="loss"):
        study.run(num_trials=2)
    assert names_in(tmp_path / "a.db") == []


def test_a_model_that_has_no_surrogate_leaves_no_study(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 2))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(1):
            loss = model(torch.ones(1, 3)).sum()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss)

    space = {"lr": hw.uniform(0, 1)}
    study = hw.Study(train, space=space, metric="loss", storage=tmp_path / "a.db", lanes=1, surrogate=2)
    with pytest.raises((StudyError, CannotScaleError)):
        study.run(num_trials=2)
    assert names_in(tmp_path / "a.db") == []


def test_a_study_that_is_refused_later_keeps_what_was_reported(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        trial.report(loss=1.0)
        raise StudyError("this cannot be")

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=tmp_path / "a.db", lanes=1, name="a")
    with pytest.raises(StudyError, match="this cannot be"):
        study.run(num_trials=2)
    assert names_in(tmp_path / "a.db") == ["a"]


def test_a_callback_that_raises_is_told_in_one_line_and_the_study_resumes(empty_place: Path) -> None:
    before = CALLBACK.format(condition="not os.path.exists('mended')")
    (empty_place / "unplugged.py").write_text(SCRIPT.format(before=before, inside="pass", callbacks="Unplug()"))
    result = CliRunner().invoke(app, ["run", "unplugged.py", "--trials", "2", "--quiet"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "ended by ConnectionError: no server (unplugged.py, line " in result.stderr
    (empty_place / "mended").touch()
    assert CliRunner().invoke(app, ["resume", "unplugged.py", "--quiet"]).exit_code == 0
    with open_store("headwater.db") as store:
        assert [trial.epochs for trial in store.trials(1)] == [3, 3]


def test_a_lock_that_lasts_is_told_in_one_line(empty_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 0.2)
    before = "import sqlite3\nother = sqlite3.connect('headwater.db', isolation_level=None)"
    inside = "other.execute('BEGIN IMMEDIATE') if epoch == 1 and not other.in_transaction else None"
    (empty_place / "locked.py").write_text(SCRIPT.format(before=before, inside=inside, callbacks=""))
    result = CliRunner().invoke(app, ["run", "locked.py", "--trials", "2", "--quiet"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "headwater.db has been locked by another process" in result.stderr
    with closing(sqlite3.connect("headwater.db")) as connection:
        assert connection.execute("SELECT count(*) FROM transitions WHERE status = 'failed'").fetchone() == (0,)
