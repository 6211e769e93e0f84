"""A study that goes on at a plan: what is left is planned, and what it has cost counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clocks import JumpingClock
from tests.cloud.nodes import CountedCluster

import headwater as hw
from headwater.errors import PlanError, StoreError
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.store import open_store
from headwater.trials import SPENDING, Spending

JOB = Job(
    stages=[
        JobStage(num_trials=9, num_epochs=1),
        JobStage(num_trials=3, num_epochs=3),
        JobStage(num_trials=1, num_epochs=5),
    ],
    epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
    instance=Instance(name="local", num_devices=1, dollars_per_hour=36.0, initialise_s=10.0),
)


def train(trial: hw.Trial) -> None:
    for epoch in trial.epochs(9):
        trial.report(loss=1 / (epoch + 1) + trial.config["lr"] / 100)


class UnusedCluster(CountedCluster):
    """A cluster that must not be started."""

    def __init__(self) -> None:
        super().__init__(JumpingClock())

    def start(self, study: str) -> None:
        raise AssertionError("nothing should have been started")


def make_study(place: Path, executor: hw.ElasticExecutor | str) -> hw.Study:
    return hw.Study(
        train,
        space={"lr": hw.uniform(0, 1)},
        metric="loss",
        search="halving",
        storage=place / "study.db",
        name="study",
        lanes=1,
        max_epochs=9,
        executor=executor,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with the record of a study that ended in its last stage, four epochs before the end."""
    result = make_study(tmp_path, "inline").run(9, target=0.21)
    assert max(trial.epochs for trial in result.trials) == 5
    return tmp_path


def test_what_is_left_is_planned(place: Path) -> None:
    executor = hw.ElasticExecutor(UnusedCluster(), JOB, deadline_s=240.0)
    with pytest.raises(PlanError, match=r"keeps to a deadline of 240 s: the nearest to that takes 250 s for \$2\.50"):
        make_study(place, executor).resume()


def test_a_new_study_is_planned_as_a_whole(tmp_path: Path) -> None:
    executor = hw.ElasticExecutor(UnusedCluster(), JOB, deadline_s=240.0)
    with pytest.raises(PlanError, match="keeps to a deadline of 240 s: the fastest takes 550 s"):
        make_study(tmp_path, executor).run(9)


def test_what_was_spent_counts_towards_the_budget(place: Path) -> None:
    with open_store(place / "study.db") as store:
        spent = Spending(seconds=100.0, cost_dollars=2.0, num_nodes=0, earlier_dollars=1.5)
        store.add_fact(store.study("study").id, SPENDING, spent.as_json())
    executor = hw.ElasticExecutor(UnusedCluster(), JOB, budget_dollars=5.0)
    with pytest.raises(PlanError, match=r"keeps to the \$1\.50 left of the budget"):
        make_study(place, executor).resume()


def test_a_cost_that_cannot_be_read_is_refused(place: Path) -> None:
    with open_store(place / "study.db") as store:
        store.add_fact(store.study("study").id, SPENDING, {"dollars": 3})
    executor = hw.ElasticExecutor(UnusedCluster(), JOB, budget_dollars=5.0)
    with pytest.raises(StoreError, match="what study 'study' has cost cannot be read"):
        make_study(place, executor).resume()
