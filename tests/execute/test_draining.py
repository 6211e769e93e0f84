"""Ray nodes that drain: their trials leave with their checkpoints saved, and the nodes end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.execute.clusters import await_truth
from tests.execute.lab import STUDY, assert_same
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.cloud.local_cluster import LocalCluster, list_local_nodes
from headwater.execute.ray_connection import connect, disconnect, list_draining_nodes
from headwater.report import Callback
from headwater.trials import Report

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(300)
NUM_TRIALS = 6


def find_starter(shell: int) -> int:
    """Return the process of `ray start` under the shell that keeps a node."""
    (subshell,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    (starter,) = Path(f"/proc/{subshell}/task/{subshell}/children").read_text().split()
    return int(starter)


class DrainOne(Callback):
    """Has the first node drain at the third report, as Kubernetes and Slurm do."""

    def __init__(self, study: str) -> None:
        self.drained: list[str] = []
        self._study = study
        self._num_left = 3

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            nodes = [node.id for node in list_local_nodes(self._study) if node.id.startswith("local-")]
            self.drained.append(nodes[0])
            os.kill(find_starter(int(nodes[0].rpartition("@")[2])), signal.SIGTERM)


def test_trials_leave_a_node_that_drains_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    drain = DrainOne("draining")
    executor = hw.ElasticExecutor(LocalCluster(), num_nodes=2)
    study = replace(STUDY, lanes=1, name="draining", executor=executor, storage=tmp_path / "s.db", callbacks=[drain])
    result = study.run(num_trials=NUM_TRIALS)
    assert len(drain.drained) == 1
    plain = replace(STUDY, lanes=1).run(num_trials=NUM_TRIALS)
    assert_same(result, plain, tolerance=0.0)
    assert result.num_lane_steps == plain.num_lane_steps
    assert_no_overlap(tmp_path / "s.db")


class Occupant:
    """Keeps a node busy."""

    def answer(self) -> str:
        return "here"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    cluster = LocalCluster()
    connect(cluster.start("told"), None)
    try:
        yield cluster
    finally:
        disconnect()
        cluster.close()


def test_ray_tells_which_nodes_drain_and_ends_them(cluster: LocalCluster) -> None:
    """The functions of Ray behind `list_draining_nodes` are private, and may change with any release."""
    import ray

    cluster.launch(1)
    await_truth(lambda: ray.cluster_resources().get("CPU") == 1)
    assert list_draining_nodes() == set()
    actor = ray.remote(Occupant).options(num_cpus=1).remote()
    assert ray.get(actor.answer.remote()) == "here"
    (node,) = [node.id for node in list_local_nodes("told") if node.id.startswith("local-")]
    os.kill(find_starter(int(node.rpartition("@")[2])), signal.SIGTERM)
    (name,) = [about["NodeID"] for about in ray.nodes() if about["Resources"].get("CPU")]
    await_truth(lambda: list_draining_nodes() == {name})
    ray.kill(actor)  # now nothing is left there
    await_truth(lambda: not any(about["Alive"] for about in ray.nodes() if about["NodeID"] == name))
