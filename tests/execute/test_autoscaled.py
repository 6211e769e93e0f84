"""A study on a Ray cluster whose own autoscaler is asked for nodes, stage by stage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.execute.calling import python_environment
from tests.execute.clusters import await_truth, open_autoscaled
from tests.execute.lab import STUDY, assert_same

import headwater as hw
from headwater.cloud.ray_autoscaler import AutoscaledCluster
from headwater.execute.ray_connection import list_ray_nodes
from headwater.execute.resource_requests import ResourceRequests
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.search.halving import SHA

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(500)

JOB = Job(
    stages=[JobStage(num_trials=4, num_epochs=1), JobStage(num_trials=1, num_epochs=3)],
    epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
    instance=Instance(num_devices=1, dollars_per_hour=36.0, initialise_s=10.0, minimum_s=0.0),
)
DEADLINE_S = 320.0
"""Two nodes and then one are the cheapest that come up to it."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with open_autoscaled(tmp_path_factory.mktemp("autoscaled")) as address:
        yield address


def read_request(address: str) -> object:
    """Return what the autoscaler of a cluster is asked for."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_get

    was_connected = ray.is_initialized()
    if not was_connected:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        asked = _internal_kv_get(b"autoscaler_resource_request")
    finally:
        if not was_connected:
            ray.shutdown()
    return json.loads(asked) if asked else None


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_asked_for_is_taken_back_however_a_process_ends(address: str, *, is_killed: bool) -> None:
    script = f"""
import sys
from headwater.execute.ray_connection import connect
from headwater.execute.resource_requests import ResourceRequests
connect({address!r}, None)
ask = ResourceRequests()
ask([{{"CPU": 1}}] * 2)
print("asked", flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=python_environment(), stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asked\n"
        assert read_request(address) == [{"CPU": 1}] * 2
        if is_killed:
            process.kill()
    await_truth(lambda: read_request(address) == [])


def test_the_autoscaler_is_asked_for_what_the_plan_gives_each_stage(address: str, tmp_path: Path) -> None:
    asked: list[int] = []
    requests = ResourceRequests()

    def ask(bundles: Sequence[Mapping[str, float]]) -> None:
        asked.append(len(bundles))
        requests(bundles)

    cluster = AutoscaledCluster(ask, partial(list_ray_nodes, "cpu"), address=address)
    study = replace(STUDY, search=SHA(reduction=3), lanes=1, max_epochs=4, storage=tmp_path / "study.db")
    executor = hw.ElasticExecutor(cluster, JOB, deadline_s=DEADLINE_S)
    result = replace(study, executor=executor).run(num_trials=4)
    assert 2 in asked  # before it, what earlier tests have left there
    assert 1 in asked[asked.index(2) :]
    assert asked[-1] == 0
    assert_same(result, replace(study, storage=None).run(num_trials=4), tolerance=0.0)
    assert result.spending is not None
    assert result.spending.cost_dollars > 0
