"""A study on real nodes that is killed in the middle goes on on new ones, from a shell, as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.execute.calling import python_environment
from tests.execute.clusters import await_truth
from tests.execute.lab import assert_same

from headwater.cloud.local_cluster import list_local_nodes
from headwater.loading import load_study_file
from headwater.report.reading import read_study
from headwater.store import open_store
from headwater.trials import Spending

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(500)

FILE = """
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import headwater as hw

HERE = Path(__file__).parent
INPUTS = torch.randn(96, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS[:, :3].argmax(1)


def train(trial):
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    for epoch in trial.epochs(9):
        if epoch == 2:
            (HERE / "reached").touch()
            while not (HERE / "goes-on").exists():
                time.sleep(0.02)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        optimizer.step()
        trial.report(loss=loss)


study = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.5)},
    metric="loss",
    search="halving",
    max_epochs=9,
    lanes=1,
    packing=None,
    save_every=1,
)
NUM_TRIALS = 6
"""
PROFILE = """
instance: {name: local, devices: 1, dollars_per_hour: 36, initialise_s: 10, minimum_s: 0}
seconds_per_epoch: {1: 60}
max_instances: 2
"""
LIMITS = ["--cluster", "local", "--profile", "profile.yaml", "--deadline", "700s", "--budget", "50"]


def start(folder: Path, verb: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headwater", verb, "train.py", *LIMITS, *options]
    pipe = subprocess.PIPE
    environment = {**python_environment(), "HEADWATER_STORAGE": str(folder / "study.db")}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def read_spending(folder: Path, name: str) -> Spending:
    with open_store(folder / "study.db", create=False) as store:
        spending = read_study(store, name, "").result.spending
    assert spending is not None
    return spending


def test_a_study_that_is_killed_on_its_nodes_goes_on_on_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FILE)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    name = f"killed-{uuid4().hex[:8]}"
    with start(tmp_path, "run", "--name", name) as process:
        await_truth(lambda: (tmp_path / "reached").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        await_truth(lambda: read_spending(tmp_path, name).num_nodes == 2)  # it is written down from time to time
        process.send_signal(signal.SIGKILL)
    await_truth(lambda: list_local_nodes(name) == [])
    (tmp_path / "goes-on").touch()
    before = read_spending(tmp_path, name)
    with start(tmp_path, "resume", "--name", name, "--json") as process:
        told, errors = process.communicate()
    assert process.returncode == 0, errors
    assert list_local_nodes(name) == []
    spending = json.loads(told)["spending"]
    assert spending["earlier_dollars"] == pytest.approx(before.cost_dollars)
    assert [stage["planned_nodes"] for stage in spending["stages"]] == [0, 1, 1], "the first stage was done"
    assert spending["num_nodes"] == 0
    assert {stay["node"] for stay in spending["stays"]}.isdisjoint(stay.node for stay in before.stays)
    with open_store(tmp_path / "study.db", create=False) as store:
        result = read_study(store, name, "").result
    plain = replace(load_study_file(tmp_path / "train.py", None).study, executor="inline", storage=None)
    assert_same(result, plain.run(num_trials=6), tolerance=0.0)
