"""How long epochs take, from a record and from training a few."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import headwater as hw
from headwater.errors import PlanError
from headwater.measuring import recall_times
from headwater.trials import Silence


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(torch.nn.Linear(4, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.item())


def make_study(place: Path, lanes: int) -> hw.Study:
    space = {"lr": hw.loguniform(1e-3, 0.1)}
    return hw.Study(train, space=space, metric="loss", storage=place / "study.db", lanes=lanes, executor="inline")


def test_a_record_knows_the_epochs_of_every_size_that_was_trained(tmp_path: Path) -> None:
    make_study(tmp_path, 2).run(5, watcher=Silence())  # two groups of two, and one alone
    times = recall_times(make_study(tmp_path, 2))
    assert times.epoch_seconds is not None
    assert set(times.epoch_seconds.by_devices) == {1}
    assert set(times.epoch_seconds.by_lanes) == {2}
    assert times.epoch_seconds.at(1) > 0
    assert times.device is not None
    assert times.device.startswith("cpu")


def test_groups_alone_do_not_tell_what_one_trial_takes(tmp_path: Path) -> None:
    make_study(tmp_path, 2).run(4, watcher=Silence())
    with pytest.raises(PlanError, match="--measure"):
        recall_times(make_study(tmp_path, 2))
