"""Measuring runs the user's function, which leaves nothing behind."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.lab import lanes_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headwater as hw
from headwater.errors import MeasuringEnds
from headwater.train import Trial
from headwater.train.profiling import profile_lanes
from headwater.train.running import TrainingSetup
from headwater.train.traceless import leaving_nothing

Write = Callable[[Path], Any]


def connect(path: Path) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


def spawn(path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"open({str(path / 'spawned')!r}, 'w')"], check=True)


def replace_file(path: Path) -> None:
    (path / "kept.txt").rename(path / "moved.txt")


WRITES: list[Write] = [
    lambda path: (path / "log.csv").open("w"),
    lambda path: (path / "kept.txt").open("a").write("more"),
    lambda path: (path / "kept.txt").write_text("other"),
    lambda path: torch.save({"a": torch.ones(2)}, path / "best.pt"),
    lambda path: torch.save({"a": torch.ones(2)}, path / "old.pt", _use_new_zipfile_serialization=False),
    lambda path: np.save(path / "predictions.npy", np.ones(3)),
    lambda path: (path / "kept.txt").unlink(),
    lambda path: shutil.copyfile(path / "kept.txt", path / "copy.txt"),
    shutil.rmtree,
    lambda path: sqlite3.connect(path / "runs.db").execute("create table runs (loss)"),
    replace_file,
    connect,
    spawn,
]


def list_files(path: Path) -> dict[str, str]:
    return {str(item): item.read_text() for item in sorted(path.rglob("*")) if item.is_file()}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_ends_the_run_before_anything_is_written(write: Write, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    before = list_files(tmp_path)
    with leaving_nothing() as trace, pytest.raises(MeasuringEnds):
        write(tmp_path)
    assert "test_traceless.py" in trace.take_reason()
    assert list_files(tmp_path) == before


def test_folders_are_removed_and_the_rest_is_let_through(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    with leaving_nothing() as trace:
        (tmp_path / "runs" / "one").mkdir(parents=True)
        (tmp_path / "runs").mkdir(exist_ok=True)
        assert (tmp_path / "kept.txt").read_text() == "kept"
        with tempfile.TemporaryFile("w") as file:
            file.write("own")
        sqlite3.connect(":memory:").close()
        data = TensorDataset(torch.arange(8.0))
        assert sum(len(batch) for (batch,) in DataLoader(data, batch_size=2, num_workers=1)) == 8
    assert trace.reason == ""
    assert [item.name for item in tmp_path.iterdir()] == ["kept.txt"]


def write_first(trial: Trial, path: Path) -> None:
    with (path / f"{trial.config['lr']}.csv").open("a") as file:
        file.write("start\n")


def write_never(trial: Trial, path: Path) -> None:
    pass


def train(trial: Trial, path: Path, begin: Callable[[Trial, Path], None]) -> None:
    begin(trial, path)
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        with (path / f"epochs of {trial.config['lr']}.csv").open("a") as file:
            file.write("epoch\n")
        trial.report(loss=1.0)


def test_steps_before_the_first_write_are_enough_to_measure(tmp_path: Path) -> None:
    with leaving_nothing():
        profile, ending = profile_lanes(TrainingSetup(lambda trial: train(trial, tmp_path, write_never)), lanes_of(4))
    assert ending is None
    assert profile.measurements
    assert list_files(tmp_path) == {}


def test_a_function_that_writes_before_its_first_step_trains_one_by_one_and_says_why(tmp_path: Path) -> None:
    with leaving_nothing():
        profile, ending = profile_lanes(TrainingSetup(lambda trial: train(trial, tmp_path, write_first)), lanes_of(4))
    assert ending is None
    assert profile.num_lanes == 1
    assert "the function writes (open" in profile.reason
    assert "test_traceless.py" in profile.reason
    assert list_files(tmp_path) == {}


def test_a_study_that_measures_writes_each_epoch_of_a_trial_once(tmp_path: Path) -> None:
    study = hw.Study(
        lambda trial: train(trial, tmp_path, write_never),
        space={"lr": hw.loguniform(1e-3, 0.1)},
        metric="loss",
        storage=None,
        executor="inline",
        lanes="auto",
    )
    result = study.run(num_trials=4)
    assert [trial.status for trial in result.trials] == ["completed"] * 4
    assert [*list_files(tmp_path).values()] == ["epoch\n" * 3] * 4
