"""What a training function knows and notes of its trial: its number, its last epoch, whatever it wants kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.report.exporting import to_records


def learn(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(2, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    trial.note(kind="linear", shape=[2, 1], who=trial.number)
    for epoch in trial.epochs(3):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2)).pow(2).mean()
        loss.backward()
        optimizer.step()
        trial.note(last_seen=epoch)
        trial.report(loss=loss.item(), is_last=float(trial.is_last))
    trial.note(end=loss, twice=2 * trial.config["lr"])


STUDY = hw.Study(learn, space={"lr": hw.uniform(0.01, 0.2)}, metric="loss", storage=None, lanes=4)


@pytest.mark.parametrize("lanes", [1, 4])
def test_what_is_noted_belongs_to_its_trial(lanes: int) -> None:
    for trial in replace(STUDY, lanes=lanes).run(num_trials=4).trials:
        noted = dict(trial.attributes)
        assert noted.pop("end") == pytest.approx(trial.metrics["loss"])
        assert noted.pop("twice") == pytest.approx(2 * trial.config["lr"])
        assert noted == {"kind": "linear", "shape": [2, 1], "who": trial.number, "last_seen": 2}
        assert trial.notes == ()


@pytest.mark.parametrize(("max_epochs", "last"), [(None, 3), (2, 2), (9, 3)])
def test_a_trial_knows_its_last_epoch(max_epochs: int | None, last: int) -> None:
    for trial in replace(STUDY, max_epochs=max_epochs).run(num_trials=2).trials:
        assert [report.metrics["is_last"] for report in trial.history] == [0.0] * (last - 1) + [1.0]


def test_notes_of_processes_reach_the_record() -> None:
    result = replace(STUDY, executor="processes", devices=1, lanes=2).run(num_trials=2)
    assert [trial.attributes["who"] for trial in result.trials] == [0, 1]
    assert [trial.attributes["end"] for trial in result.trials] == pytest.approx(
        [trial.metrics["loss"] for trial in result.trials]
    )


def test_notes_are_shown_and_exported(tmp_path: Path) -> None:
    result = replace(STUDY, storage=tmp_path / "a.db").run(num_trials=2)
    place = ["--storage", str(tmp_path / "a.db")]
    shown = CliRunner().invoke(app, ["show", "--trial", "1", *place]).stdout
    assert "last_seen  2" in shown
    as_json = json.loads(CliRunner().invoke(app, ["show", "--trial", "1", "--json", *place]).stdout)
    assert as_json["attributes"]["who"] == 1
    assert "last_seen" not in CliRunner().invoke(app, ["show", *place]).stdout
    assert [row["note.kind"] for row in to_records(result)] == ["linear", "linear"]
