"""Instances of EC2 are launched, found and ended, whatever becomes of who launched them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.clocks import JumpingClock
from tests.cloud.nodes import Listener
from tests.cloud.test_following import make_lanes
from tests.cloud.test_spot_run import DEADLINE_S, SPOT_JOB
from tests.cloud.test_spot_run import RULES as SPOT_RULES
from tests.execute.calling import python_environment

from headwater.cloud.ec2 import (
    LEASE_S,
    LEASE_TAG,
    NOTICE_S,
    RETRY_S,
    STUDY_TAG,
    Ec2Cluster,
    Ec2Settings,
    end_instances,
    list_instances,
    list_marked,
    open_client,
)
from headwater.cloud.protocol import NodeState
from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.node_keeper import NodeKeeper

IMAGE = "ami-12c6146b"
"""One that moto knows."""
SETTINGS = Ec2Settings(image=IMAGE, instance="c5.large", head="10.0.0.1:6379", num_devices=2)
NUM_KILLS = 20


class WallClock(JumpingClock):
    """Shows the time when it was made, and jumps on from there."""

    def __init__(self) -> None:
        super().__init__()
        self.jump(time.time() - 1000.0)


@pytest.fixture
def client(ec2_url: str) -> Any:
    return open_client()


def describe(client: Any) -> list[dict[str, Any]]:
    pages = client.describe_instances()["Reservations"]
    return [one for page in pages for one in page["Instances"]]


def test_instances_are_tagged_from_their_request_on(client: Any) -> None:
    clock = WallClock()
    cluster = Ec2Cluster(SETTINGS, clock=clock)
    assert cluster.start("mine") == "10.0.0.1:6379"
    cluster.launch(2)
    nodes = cluster.list_nodes()
    assert [(node.instance, node.num_devices, node.study, node.is_spot) for node in nodes] == [
        ("c5.large", 2, "mine", False)
    ] * 2
    for about in describe(client):
        tags = {tag["Key"]: tag["Value"] for tag in about["Tags"]}
        assert tags[STUDY_TAG] == "mine"
        assert int(tags[LEASE_TAG]) == int(clock() + LEASE_S)
        (behaviour,) = (
            client.describe_instance_attribute(
                InstanceId=about["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
            )["InstanceInitiatedShutdownBehavior"],
        )
        assert behaviour == {"Value": "terminate"}


def test_instances_that_are_released_are_terminated_and_the_others_with_the_cluster(client: Any) -> None:
    cluster = Ec2Cluster(SETTINGS)
    cluster.start("mine")
    cluster.launch(3)
    first, *others = cluster.list_nodes()
    cluster.release([first])
    cluster.release([first])
    assert cluster.list_nodes() == others
    assert [node.id for node in list_instances(client)] == [node.id for node in others]
    cluster.close()
    assert list_instances(client) == []


def test_spot_instances_are_asked_for_once(client: Any) -> None:
    cluster = Ec2Cluster(replace(SETTINGS, is_spot=True))
    cluster.start("mine")
    cluster.launch(1)
    assert [node.is_spot for node in cluster.list_nodes()] == [True]


def mark_for_termination(name: str) -> None:
    """Have moto's EC2 announce the end of a spot instance: it gives requests to those that are asked for by one."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2.models import ec2_backends

    client, backend = open_client(), ec2_backends[DEFAULT_ACCOUNT_ID]["us-east-1"]
    client.request_spot_instances(SpotPrice="1", LaunchSpecification={"ImageId": IMAGE, "InstanceType": "c5.large"})
    request = list(backend.spot_instance_requests.values())[-1]
    client.terminate_instances(InstanceIds=[request.instance.id])
    request.instance = backend.get_instance(name)
    request._status_code = "marked-for-termination"


def test_the_notice_that_a_spot_instance_gets_is_read_from_its_request(client: Any) -> None:
    clock = WallClock()
    cluster = Ec2Cluster(replace(SETTINGS, is_spot=True), clock=clock)
    cluster.start("mine")
    cluster.launch(2)
    first, second = cluster.list_nodes()
    mark_for_termination(first.id)
    told_s = clock()
    clock.jump(30.0)
    assert list_marked(client) == {first.id}
    assert {node.id: node.taken_s for node in cluster.list_nodes()} == {
        first.id: pytest.approx(told_s + 30.0 + NOTICE_S),
        second.id: None,
    }
    clock.jump(30.0)
    assert cluster.list_nodes()[0].taken_s == pytest.approx(told_s + 30.0 + NOTICE_S), "not later than it was told"


def test_instances_on_demand_take_the_place_of_spot_instances(client: Any) -> None:
    cluster = Ec2Cluster(replace(SETTINGS, is_spot=True))
    cluster.start("mine")
    assert cluster.launch(1) == 1
    assert cluster.launch(2, on_demand=True) == 2
    assert sorted(node.is_spot for node in cluster.list_nodes()) == [False, False, True]


def test_where_there_is_no_capacity_it_is_not_asked_for_a_while(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.models.instances import InstanceBackend

    clock = WallClock()
    cluster = Ec2Cluster(replace(SETTINGS, is_spot=True), clock=clock)
    cluster.start("mine")
    launch, asked = InstanceBackend.run_instances, []

    def refuse(self: Any, *given: Any, **options: Any) -> Any:
        asked.append(options.get("instance_market_options"))
        if asked[-1]:
            raise EC2ClientError("InsufficientInstanceCapacity", "nothing is left")
        return launch(self, *given, **options)

    monkeypatch.setattr(InstanceBackend, "run_instances", refuse)
    assert [cluster.launch(2), cluster.launch(2)] == [0, 0]
    assert len(asked) == 1
    assert cluster.launch(1, on_demand=True) == 1
    clock.jump(RETRY_S)
    monkeypatch.undo()
    assert cluster.launch(1) == 1


@pytest.mark.timeout(300)
def test_a_run_on_ec2_heeds_a_notice_and_pays_on_demand_when_it_is_late(client: Any) -> None:
    clock = WallClock()
    cluster = Ec2Cluster(replace(SETTINGS, is_spot=True, num_devices=1), clock=clock)
    cluster.start("mine")
    listener, work = Listener(make_lanes(*[(0, 1)] * 6)), JoinedWork()
    keeper = NodeKeeper(cluster, SPOT_RULES, SPOT_JOB, deadline_s=DEADLINE_S, clock=clock)

    def tend(seconds: float) -> list[bool]:
        clock.jump(seconds)
        for _ in range(3):
            keeper.tend(cast(Conductor, listener), work)
            work.nodes = [node.id for node in cluster.list_nodes()]
        return sorted(node.is_spot for node in list_instances(client))

    assert tend(0.0) == [True] * 3
    name = list_instances(client)[0].id
    work.busy = {name}
    mark_for_termination(name)
    assert tend(10.0) == [True] * 4, "another comes while what trains there comes to its report"
    assert any(note.startswith(f"node {name} will be taken back in 120 s") for note in listener.notes)
    work.busy = set()
    assert tend(10.0) == [True] * 3
    assert tend(DEADLINE_S) == [False] * 3
    keeper.finish(cast(Conductor, listener))
    assert list_instances(client) == []
    assert listener.spending is not None
    assert listener.spending.spot_dollars is not None
    assert 0 < listener.spending.spot_dollars < listener.spending.cost_dollars
    assert listener.spending.num_lost == 1


class JoinedWork:
    """Says of each node whether it works, as a test has it."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.busy: set[str] = set()

    def see_nodes(self) -> dict[str, bool]:
        return {name: name in self.busy for name in self.nodes}

    def let_go(self, nodes: Collection[str]) -> list[str]:
        return [f"{name}/cpu:0" for name in nodes]

    def part_from(self, node: str) -> None:
        assert node not in self.busy


def end_expired(client: Any, now_s: float) -> list[str]:
    """End the instances whose leases have passed, as their watchdogs do, and return the names of their studies."""
    expired = [node for node in list_instances(client) if node.lease_s is None or node.lease_s < now_s]
    end_instances(client, [node.id for node in expired])
    return [node.study for node in expired]


def test_a_run_that_is_heard_of_keeps_its_instances_and_one_that_is_not_loses_them(client: Any) -> None:
    clock = WallClock()
    heard, silent = Ec2Cluster(SETTINGS, clock=clock), Ec2Cluster(SETTINGS, clock=clock)
    for cluster, name in ((heard, "heard"), (silent, "silent")):
        cluster.start(name)
        cluster.launch(1)
    for _ in range(4):
        clock.jump(LEASE_S / 3)
        heard.list_nodes()
    assert end_expired(client, clock()) == ["silent"]
    assert [node.study for node in list_instances(client)] == ["heard"]


def test_studies_of_the_same_name_leave_each_other_alone(client: Any) -> None:
    """Two records may both have a study train-1."""
    first, second = Ec2Cluster(SETTINGS), Ec2Cluster(SETTINGS)
    for cluster in (first, second):
        cluster.start("train-1")
        cluster.launch(1)
    first.close()
    assert [node.state for node in second.list_nodes()] == [NodeState.RUNNING]


def test_what_ec2_refuses_is_said_in_one_line(ec2_url: str) -> None:
    cluster = Ec2Cluster(replace(SETTINGS, subnet="subnet-none"))
    cluster.start("mine")
    with pytest.raises(StudyError, match=r"EC2 refused to launch a c5.large: .*subnet-none.*; headwater cluster ls"):
        cluster.launch(1)


@pytest.mark.timeout(600)
def test_a_study_that_is_killed_at_any_moment_leaves_no_instance_after_its_lease(client: Any) -> None:
    script = f"""
import sys
from headwater.cloud.ec2 import Ec2Cluster, Ec2Settings
settings = Ec2Settings(image={IMAGE!r}, instance="c5.large", head="10.0.0.1:6379")
cluster = Ec2Cluster(settings)
cluster.start(sys.argv[1])
print("begun", flush=True)
while True:
    cluster.launch(1)
    nodes = cluster.list_nodes()
    cluster.release(nodes[: len(nodes) // 2])
"""
    rng = random.Random(0)
    for number in range(NUM_KILLS):
        command = [sys.executable, "-c", script, f"study-{number}"]
        with subprocess.Popen(command, env=python_environment(), stdout=subprocess.PIPE) as study:
            try:
                assert study.stdout is not None
                assert study.stdout.readline() == b"begun\n"
                with pytest.raises(subprocess.TimeoutExpired):
                    study.wait(rng.uniform(0.0, 0.5))
            finally:
                study.kill()
    left = [about for about in describe(client) if about["State"]["Name"] == "running"]
    assert left, "no kill left anything, so that there is nothing to see"
    assert all(STUDY_TAG in {tag["Key"] for tag in about["Tags"]} for about in left)
    assert end_expired(client, time.time()) == [], "no lease has passed yet"
    end_expired(client, time.time() + LEASE_S + 1)
    assert {about["State"]["Name"] for about in describe(client)} == {"terminated"}
