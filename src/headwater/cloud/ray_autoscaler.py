"""A Ray cluster that is there already, whose own autoscaler launches and ends nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwater.cloud.protocol import Node, NodeState

Ask = Callable[[Sequence[Mapping[str, float]]], None]
"""Has the autoscaler see to it that there is room for bundles."""
Look = Callable[[], Sequence[Node]]
"""Returns the nodes that there are."""


class AutoscaledCluster:
    """Nodes of a Ray cluster with an autoscaler.

    How many there are is asked for as bundles, each as large as a node. Which nodes go is for Ray to say: those that
    have nothing to do, when its own time for idle nodes is over. They are charged until then.

    Args:
        address: The cluster; None for the one that this process is connected to.
        num_devices: How many devices a node has.
        kind: What they are, "cpu" or "cuda".
    """

    def __init__(
        self,
        ask: Ask,
        look: Look,
        *,
        address: str | None = "auto",
        num_devices: int = 1,
        kind: str = "cpu",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._look = look
        self._address = address
        self._num_devices = num_devices
        self._resource = "CPU" if kind == "cpu" else "GPU"
        self._clock = clock
        self._study = ""
        self._num_wanted = 0
        self._seen: dict[str, Node] = {}
        self._released: set[str] = set()

    def start(self, study: str) -> str | None:
        """Return the address."""
        self._study = study
        return self._address

    def list_nodes(self) -> list[Node]:
        """Return the nodes that Ray has, those that are to go among them, and those that were asked for.

        What is there already is asked for too, or the autoscaler would end it between two placements.
        """
        there = {node.id: node for node in self._look()}
        self._released &= there.keys()
        now_s = self._clock()
        self._seen = {
            name: self._seen.get(name) or replace(node, launched_s=now_s, study=self._study)
            for name, node in there.items()
        }
        nodes = [
            replace(node, state=NodeState.ENDING) if name in self._released else node
            for name, node in self._seen.items()
        ]
        num_held = sum(node.state is NodeState.RUNNING for node in nodes)
        if num_held > self._num_wanted:
            self._want(num_held)
        return nodes + [self._await(number) for number in range(self._num_wanted - num_held)]

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        """Ask for so many more than there are; whether they are spot instances is for the autoscaler to say."""
        held = sum(node.state is not NodeState.ENDING for node in self.list_nodes())
        self._want(held + count)
        return count

    def release(self, nodes: Sequence[Node]) -> None:
        """Ask for so many fewer; these are the ones that nothing is given any more."""
        held = sum(node.state is not NodeState.ENDING for node in self.list_nodes())
        going = {node.id for node in nodes} - self._released
        self._released |= going & self._seen.keys()
        self._want(max(held - len(going), 0))

    def close(self) -> None:
        """Ask for nothing any more, if anything is asked for."""
        if self._num_wanted:
            self._want(0)

    def _want(self, count: int) -> None:
        self._num_wanted = count
        self._ask([{self._resource: self._num_devices}] * count)

    def _await(self, number: int) -> Node:
        return Node(
            id=f"asked-{number}",
            instance="ray",
            num_devices=self._num_devices,
            state=NodeState.PENDING,
            launched_s=self._clock(),
            study=self._study,
        )
