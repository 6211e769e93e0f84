"""A cluster of nodes that are only counted, and whoever works on them, for tests of what is decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from headwater.cloud.protocol import Node, NodeState
from headwater.plan.jobs import Part
from headwater.trials import Event, Lane, Noted, Spending, Spent


class CountedCluster:
    """Nodes that are there as soon as they are asked for."""

    def __init__(self, clock: Callable[[], float], *, is_spot: bool = False) -> None:
        self.nodes: dict[str, Node] = {}
        self.num_launched = 0
        self.has_spot = True
        """Whether spot instances are to be had."""
        self._is_spot = is_spot
        self._clock = clock

    def start(self, study: str) -> None:
        """Nobody needs to connect to it."""

    def list_nodes(self) -> list[Node]:
        return list(self.nodes.values())

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        is_spot = self._is_spot and not on_demand
        if is_spot and not self.has_spot:
            return 0
        for _ in range(count):
            name = f"node-{self.num_launched}"
            self.num_launched += 1
            self.nodes[name] = Node(
                id=name,
                instance="counted",
                num_devices=1,
                state=NodeState.RUNNING,
                launched_s=self._clock(),
                is_spot=is_spot,
            )
        return count

    def announce(self, name: str, notice_s: float) -> None:
        """Have a node be told that it will be taken back; the test takes it."""
        self.nodes[name] = replace(self.nodes[name], taken_s=self._clock() + notice_s)

    def release(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.nodes.pop(node.id, None)

    def close(self) -> None:
        self.nodes.clear()


class CountedWork:
    """Says of each node of a cluster whether it works, as a test has it."""

    def __init__(self, cluster: CountedCluster) -> None:
        self._cluster = cluster
        self.busy: set[str] = set()
        self.left: set[str] = set()

    def see_nodes(self) -> dict[str, bool]:
        return {name: name in self.busy for name in self._cluster.nodes}

    def let_go(self, nodes: Collection[str]) -> list[str]:
        self.left |= set(nodes)
        return [f"{name}/cpu:0" for name in nodes]

    def part_from(self, node: str) -> None:
        assert node not in self.busy


class Listener:
    """Stands where a conductor does, with the lanes that a test gives it."""

    name = "study"

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self.regrouped: list[str] = []
        self.notes: list[str] = []
        self.spending: Spending | None = None

    part = Part.SEARCH

    def list_lanes(self) -> Sequence[Lane]:
        return self.lanes

    def regroup(self, devices: Collection[str] | None = None) -> None:
        self.regrouped += devices or ()

    def hear(self, event: Event) -> None:
        if isinstance(event, Noted):
            self.notes.append(event.text)
        if isinstance(event, Spent):
            self.spending = event.spending
