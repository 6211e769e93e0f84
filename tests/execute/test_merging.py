"""Groups of real processes that lose trials become one, and are cut only where that is faster; results stay."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.execute.clusters import await_truth
from tests.execute.lab import StayingExecutor, assert_same
from tests.execute.test_device_changes import WishAt
from torch import nn

import headwater as hw
from headwater.conduct import flow
from headwater.plan.surface import Surface
from headwater.store import DEVICES, leases, open_store
from headwater.trials import DeviceWish

torch.manual_seed(0)
INPUTS = torch.randn(64, 8, dtype=torch.float64)
TARGETS = INPUTS.sum(1, keepdim=True).sin()
NUM_LANES, NUM_EPOCHS, LOST_AT = 8, 14, 5


def train_in_step(folder: Path) -> Callable[[hw.Trial], None]:
    """Return a function whose lanes train as one, and mostly come to nothing; two groups of it keep in step then."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double())
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        start = None
        for epoch in trial.epochs(NUM_EPOCHS):
            start = epoch if start is None else start
            optimizer.zero_grad()
            loss = F.mse_loss(model(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
            if start == 0 and epoch > LOST_AT and trial.lanes[0].number < 2 * NUM_LANES:
                keep_in_step(folder, epoch)
            rate = 0.0 * loss.detach() + trial.config["lr"] * float(epoch == LOST_AT)
            trial.report(loss=torch.where(rate > 0.035, math.inf, loss.detach()))

    return train


def keep_in_step(folder: Path, epoch: int) -> None:
    """Wait until the other process is about to report this epoch too; in one process nobody waits."""
    (folder / f"{epoch}-{os.getpid()}").touch()
    if not (folder / "alone").exists():
        await_truth(lambda: len([*folder.glob(f"{epoch}-*")]) > 1)


STUDY = hw.Study(
    train_in_step(Path()),
    space={"lr": hw.uniform(1e-3, 0.1)},
    metric="loss",
    lanes=NUM_LANES,
    max_epochs=NUM_EPOCHS,
    packing=None,
    storage=None,
    executor="inline",
)


def list_notes(path: Path) -> list[str]:
    with open_store(path, create=False) as store:
        return [note.text for note in store.notes(store.study("one").id) if note.kind == DEVICES]


@pytest.mark.timeout(400)
def test_groups_that_have_lost_trials_become_one_and_results_stay(
    workers: StayingExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Surface", partial(Surface, change_s=0.0))
    path = tmp_path / "study.db"
    study = replace(STUDY, train=train_in_step(tmp_path))
    result = replace(study, storage=path, name="one", executor=workers).run(num_trials=32)
    assert any("trials of two groups become one, for others waited" in text for text in list_notes(path))
    (tmp_path / "alone").touch()
    assert_same(result, study.run(num_trials=32))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("steps", "is_cut"), [({4: 1.0, 8: 9.0}, True), ({4: 1.0, 8: 1.0}, False)])
def test_a_group_is_cut_for_a_device_that_comes_only_where_its_parts_are_faster(
    steps: dict[int, float], is_cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LISTEN_S", 0.0)
    monkeypatch.setattr(flow, "Surface", partial(Surface, steps={(): steps}, change_s=0.0))
    path = tmp_path / "study.db"
    study = replace(STUDY, train=train_whole)
    more = WishAt(path, {1: DeviceWish(num_more=1, asker="anna")})
    away = replace(study, storage=path, name="one", executor=hw.ProcessExecutor(1), callbacks=[more])
    assert_same(away.run(num_trials=NUM_LANES), study.run(num_trials=NUM_LANES))
    assert any("cut into 2 groups, for devices were idle" in text for text in list_notes(path)) is is_cut


def train_whole(trial: hw.Trial) -> None:
    """Train lanes as one, of which none is lost."""
    model = trial.prepare_model(nn.Linear(8, 1).double())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(NUM_EPOCHS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(INPUTS), TARGETS)
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)
