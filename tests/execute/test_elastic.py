"""A study on real raylets that come and go by a plan ends with the table of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.execute.clusters import await_truth
from tests.execute.lab import INPUTS, TARGETS, assert_same
from torch import nn

import headwater as hw
from headwater.cloud.local_cluster import LocalCluster, list_local_nodes
from headwater.cloud.protocol import Node
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.report import Callback
from headwater.search.halving import SHA
from headwater.store import open_store
from headwater.trials import NODE_STAYS, PRICES, SPENDING, Report, Spending

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(500)

NAME = "elastic-run"
INSTANCE = Instance(name="local", num_devices=1, dollars_per_hour=36.0, initialise_s=10.0, minimum_s=0.0)
JOB = Job(
    stages=[
        JobStage(num_trials=6, num_epochs=1),
        JobStage(num_trials=2, num_epochs=3),
        JobStage(num_trials=1, num_epochs=5),
    ],
    epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
    instance=INSTANCE,
    max_instances=2,
)
REPLACED = "replaced"
COUNT = "count"
DEADLINE_S = 700.0
"""Two nodes for two stages, and one for the last, are the cheapest that come up to it."""


def announce(folder: Path) -> None:
    """Add one byte for this process to a file; a function that lists its files would be trained again after a pause."""
    own = folder / str(os.getpid())
    if not own.exists():
        own.touch()
        with (folder / COUNT).open("ab") as file:
            file.write(b".")


def train_in(folder: Path) -> Callable[[hw.Trial], None]:
    """Return a function that waits for others, unless it runs in this process.

    Its second epoch begins when two processes are there, its third when a node that was killed has been replaced.
    """
    here = os.getpid()

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double())
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        for epoch in trial.epochs(9):
            if epoch == 1 and os.getpid() != here:
                announce(folder)
                await_truth(lambda: (folder / COUNT).stat().st_size >= 2)
            if epoch == 2 and os.getpid() != here:
                await_truth(folder.with_name(REPLACED).exists)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
            trial.report(loss=loss)

    return train


class NotedCluster:
    """A local cluster, and how many nodes it was asked to launch and to end, in turn."""

    def __init__(self, folder: Path) -> None:
        self.changes: list[int] = []
        self._folder = folder
        self._cluster = LocalCluster()
        self.start, self.list_nodes, self.close = self._cluster.start, self._cluster.list_nodes, self._cluster.close

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        self.changes.append(count)
        if len(self.changes) > 1:
            (self._folder / REPLACED).touch()
        return self._cluster.launch(count, on_demand=on_demand)

    def release(self, nodes: Sequence[Node]) -> None:
        self.changes += [-len(nodes)] if nodes else []
        self._cluster.release(nodes)


class KillNode(Callback):
    """Kills one of the nodes with all its processes, in the middle of the second stage."""

    def __init__(self) -> None:
        self.num_killed = 0

    def on_reports(self, reports: Sequence[Report]) -> None:
        if reports[0].epoch == 2 and not self.num_killed:
            nodes = [node for node in list_local_nodes(NAME) if node.id.startswith("local-")]
            os.killpg(int(nodes[0].id.partition("@")[2]), signal.SIGKILL)
            self.num_killed = 1


def test_nodes_join_and_leave_by_the_plan_one_is_killed_and_the_table_is_that_of_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    folder.mkdir()
    killer, cluster = KillNode(), NotedCluster(tmp_path)
    executor = hw.ElasticExecutor(cluster, JOB, deadline_s=DEADLINE_S)
    assert executor.plan is not None
    assert executor.plan.instances == (2, 2, 1)
    study = hw.Study(
        train_in(folder),
        space={"lr": hw.loguniform(1e-3, 0.5)},
        metric="loss",
        search=SHA(reduction=3),
        storage=tmp_path / "study.db",
        name=NAME,
        lanes=1,
        packing=None,
        max_epochs=9,
        executor=executor,
        callbacks=[killer],
    )
    result = study.run(num_trials=6)
    assert killer.num_killed == 1
    assert cluster.changes == [2, 1, -1, -1], "two came, one was replaced, one went after the second stage"
    assert list_local_nodes(NAME) == []
    assert_same(result, replace(study, executor="inline", storage=None, callbacks=()).run(num_trials=6), tolerance=0.0)
    spending = result.spending
    assert spending is not None
    assert spending.num_nodes == 0
    assert spending.cost_dollars > 0
    assert [stage.planned_nodes for stage in spending.stages] == [2, 2, 1]
    assert all(stage.seconds is not None for stage in spending.stages)
    with open_store(tmp_path / "study.db", create=False) as store:
        study_id = store.study(NAME).id
        fact, stays, prices = (store.fact(study_id, key) for key in (SPENDING, NODE_STAYS, PRICES))
    assert isinstance(fact, dict)
    assert Spending.from_json(fact, stays, prices) == spending
    assert min(price for _, price in spending.prices) <= executor.plan.cost_dollars
    assert [stay.is_lost for stay in spending.stays].count(True) == spending.num_lost == 1
    cost = sum(stay.cost_until(spending.seconds) for stay in spending.stays)
    assert cost == pytest.approx(spending.cost_dollars, abs=0.02), "the stays are what was paid for"
