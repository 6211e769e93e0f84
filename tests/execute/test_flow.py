"""Devices that flow in real processes change no result: a trial goes from one device to two and back at its reports."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.execute.lab import StayingExecutor
from torch import nn

import headwater as hw
from headwater.conduct import flow
from headwater.plan.surface import Surface
from headwater.store import open_store
from headwater.trials import Result, Status

torch.manual_seed(0)
INPUTS = torch.randn(256, 8, dtype=torch.float64)
TARGETS = INPUTS.sum(1, keepdim=True).sin()


def train(trial: hw.Trial) -> None:
    """Ask for the value of a rate, so that no two trials train as one."""
    if trial.config["lr"] > 1.0:
        raise ValueError
    model = trial.prepare_model(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)).double())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=float(f"{trial.config['lr']:.6f}"), momentum=0.9)
    for _ in trial.epochs(9):
        for x, y in zip(INPUTS.split(32), TARGETS.split(32), strict=True):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)


@pytest.mark.parametrize("search", ["halving", "asha"])
def test_results_are_those_of_one_process(
    workers: StayingExecutor, search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Surface", partial(Surface, change_s=0.0))
    study = hw.Study(
        train,
        space={"lr": hw.loguniform(1e-3, 0.1)},
        metric="loss",
        search=search,
        storage=tmp_path / "study.db",
        name="wide",
        max_epochs=9,
        packing=None,
        executor=workers,
    )
    wide = study.run(num_trials=5)
    alone = replace(study, storage=None, executor="inline").run(num_trials=5)
    assert_same(wide, alone)
    with open_store(tmp_path / "study.db") as store:
        spans = store.spans(store.study("wide"))
    places = [(span.trials, span.begin_s) for span in spans]
    if search == "halving":  # its last trial is left alone with two devices
        assert any(len(trials) == 1 and places.count((trials, begin_s)) == 2 for trials, begin_s in places)


def assert_same(first: Result, second: Result) -> None:
    for mine, other in zip(first.trials, second.trials, strict=True):
        assert mine.status is not Status.FAILED
        assert (mine.number, mine.status, mine.epochs, mine.config) == (
            other.number,
            other.status,
            other.epochs,
            other.config,
        )
        wanted = [report.metrics["loss"] for report in other.history]
        assert [report.metrics["loss"] for report in mine.history] == pytest.approx(wanted, rel=1e-9)
