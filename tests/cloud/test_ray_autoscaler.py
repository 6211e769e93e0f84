"""An autoscaler is asked for as many nodes as are wanted, and what it does is seen in what Ray has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.clocks import JumpingClock

from headwater.cloud.protocol import Node, NodeState
from headwater.cloud.ray_autoscaler import AutoscaledCluster


class Autoscaler:
    """What a Ray cluster has and is asked for."""

    def __init__(self) -> None:
        self.asked: Sequence[Mapping[str, float]] = ()
        self.there: list[str] = []

    def ask(self, bundles: Sequence[Mapping[str, float]]) -> None:
        self.asked = bundles

    def look(self) -> list[Node]:
        return [
            Node(id=name, instance="ray", num_devices=4, state=NodeState.RUNNING, launched_s=0.0) for name in self.there
        ]


@pytest.fixture
def autoscaler() -> Autoscaler:
    return Autoscaler()


def test_nodes_that_were_asked_for_are_pending_until_they_are_there(autoscaler: Autoscaler) -> None:
    clock = JumpingClock()
    cluster = AutoscaledCluster(autoscaler.ask, autoscaler.look, num_devices=4, clock=clock)
    assert cluster.start("mine") == "auto"
    cluster.launch(2)
    assert autoscaler.asked == [{"CPU": 4}, {"CPU": 4}]
    assert [node.state for node in cluster.list_nodes()] == [NodeState.PENDING] * 2
    clock.jump(30.0)
    autoscaler.there = ["a"]
    first, second = cluster.list_nodes()
    assert (first.id, first.state, first.launched_s, second.state) == ("a", "running", clock(), "pending")


def test_a_node_that_is_released_is_charged_until_ray_has_ended_it(autoscaler: Autoscaler) -> None:
    cluster = AutoscaledCluster(autoscaler.ask, autoscaler.look, num_devices=4)
    cluster.start("mine")
    cluster.launch(2)
    autoscaler.there = ["a", "b"]
    first, _ = cluster.list_nodes()
    cluster.release([first])
    assert autoscaler.asked == [{"CPU": 4}]
    assert {node.id: node.state.value for node in cluster.list_nodes()} == {"a": "ending", "b": "running"}
    autoscaler.there = ["b"]
    assert [node.id for node in cluster.list_nodes()] == ["b"]
    cluster.close()
    assert autoscaler.asked == []


def test_a_node_that_is_there_already_is_asked_for_until_it_is_released(autoscaler: Autoscaler) -> None:
    autoscaler.there = ["a"]
    cluster = AutoscaledCluster(autoscaler.ask, autoscaler.look, num_devices=4)
    cluster.start("mine")
    (node,) = cluster.list_nodes()
    assert autoscaler.asked == [{"CPU": 4}]
    cluster.release([node])
    cluster.list_nodes()
    assert autoscaler.asked == []


def test_nothing_is_asked_of_an_autoscaler_that_nothing_was_asked_of(autoscaler: Autoscaler) -> None:
    autoscaler.asked = [{"CPU": 99}]
    AutoscaledCluster(autoscaler.ask, autoscaler.look).close()
    assert autoscaler.asked == [{"CPU": 99}]
