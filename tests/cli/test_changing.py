"""The verbs that change the record: what is gone is gone, what is renamed goes on, what failed trains again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.scripts import ENDLESS
from torch import nn
from typer.testing import CliRunner, Result

import headwater as hw
from headwater.cli import app
from headwater.errors import StudyError
from headwater.store import find_states, open_store
from headwater.store.folder import Folder
from headwater.trials import Status

STUDY = """
from pathlib import Path
import headwater as hw

def train(trial):
    for epoch in trial.epochs(2):
        if trial.config["lr"] > 1 and not Path("mended").exists():
            raise RuntimeError("a bug")
        trial.report(loss=trial.config["lr"])

study = hw.Study(train, space={"lr": hw.grid([1, 2, 3])}, metric="loss", lanes=1)
"""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def states() -> dict[str, str]:
    return {one["study"]: one["state"] for one in json.loads(invoke("ls", "--json").stdout)["studies"]}


def learn(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(2):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if Path("break").exists() and model[0].out_features == 16:
            raise RuntimeError("the target is broken")
        trial.report(loss=loss)


WIDE = hw.Study(
    learn,
    space={"lr": hw.uniform(0.01, 0.1)},
    metric="loss",
    lanes=1,
    surrogate=hw.Surrogate(scale=2, num_checked=0, min_width=4),
    name="wide",
    executor="inline",
)


def test_a_study_that_is_removed_is_gone_with_its_states(place: Path) -> None:
    for name in ("one", "two"):
        hw.Study(learn, space={"lr": hw.uniform(0.01, 0.1)}, metric="loss", lanes=1, name=name).run(num_trials=1)
    with open_store("headwater.db") as store:
        folder = Folder(find_states(store, store.study("one")).url)
    assert folder.list_names()
    assert invoke("rm", "one", "--yes").stdout == "removed one\n"
    assert folder.list_names() == []
    assert list(states()) == ["two"]
    assert invoke("show", "one").exit_code == 2


def test_nothing_is_removed_unless_somebody_says_so(place: Path) -> None:
    invoke("run", "my_study.py")
    refused = invoke("rm", "train-1")
    assert refused.exit_code == 2
    assert "remove train-1 with 3 trials and all saved states? Say so with --yes" in refused.stderr
    assert list(states()) == ["train-1"]


def test_a_study_that_runs_is_neither_removed_nor_renamed(place: Path) -> None:
    (place / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "run", "endless.py"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reported\n"
    assert states() == {"train-1": "running"}
    for arguments in (("rm", "train-1", "--yes"), ("rename", "train-1", "other"), ("retry", "endless.py", "--quiet")):
        refused = invoke(*arguments)
        assert refused.exit_code == 2
        assert "still running" in refused.stderr
    process.kill()
    process.communicate()
    assert states() == {"train-1": "killed"}
    assert invoke("rm", "train-1", "--yes").exit_code == 0


def test_a_renamed_study_goes_on_where_it_was(place: Path) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    assert invoke("rename", "train-1", "better").exit_code == 0
    assert list(states()) == ["better"]
    assert invoke("resume", "my_study.py", "--name", "better", "--trials", "3").exit_code == 0
    taken = hw.Study(learn, space={"lr": hw.uniform(0.01, 0.1)}, metric="loss", lanes=1, name="other")
    taken.run(num_trials=1)
    refused = invoke("rename", "better", "other")
    assert refused.exit_code == 2
    assert "there is a study named 'other' already" in refused.stderr


def test_a_renamed_study_keeps_its_weights_and_stages(place: Path) -> None:
    WIDE.run(num_trials=2)
    before = sorted(states())
    assert invoke("rename", "wide", "narrow").exit_code == 0
    assert sorted(states()) == sorted(name.replace("wide", "narrow") for name in before)
    assert invoke("best", "narrow", "--save", "model.safetensors").exit_code == 0
    assert replace(WIDE, name="narrow").resume().target is not None
    assert json.loads(invoke("rm", "narrow", "--yes", "--json").stdout)["removed"][-1] == "narrow"
    assert states() == {}


@pytest.mark.parametrize("order", ["virtual", "arrival"])
@pytest.mark.parametrize("search", ["grid", "asha"])
def test_failed_trials_train_again(place: Path, search: str, order: str) -> None:
    options = ("--search", search, "--order", order, "--max-epochs", "2")
    assert invoke("run", "my_study.py", *options).exit_code == 0
    (place / "mended").touch()
    done = invoke("retry", "my_study.py", "--json")
    assert done.exit_code == 0
    statuses = json.loads(done.stdout)["statuses"]
    assert statuses["failed"] == 0
    assert sum(statuses.values()) == 3
    notes = json.loads(invoke("show", "--trial", "2", "--json").stdout)["notes"]
    assert "trains again; it had failed: RuntimeError: a bug" in notes


def test_a_failed_target_trains_again(place: Path) -> None:
    (place / "break").touch()
    with pytest.raises(StudyError, match="the target is broken"):
        WIDE.run(num_trials=2)
    (place / "break").unlink()
    with pytest.raises(StudyError, match="the target is broken"):
        WIDE.resume()
    result = WIDE.retry()
    assert result.target is not None
    assert result.target.status is Status.COMPLETED


def test_a_study_that_ended_early_is_unfinished(place: Path) -> None:
    invoke("run", "my_study.py", "--name", "all")
    invoke("run", "my_study.py", "--name", "few", "--target", "1")
    assert states() == {"all": "done", "few": "unfinished"}
