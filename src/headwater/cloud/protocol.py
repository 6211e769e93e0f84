"""The contract of whatever nodes come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NodeState(StrEnum):
    """What has become of a node."""

    QUEUED = "queued"
    """It waits for its turn in a queue, for as long as that takes."""
    PENDING = "pending"
    """It was asked for, and is not there yet."""
    RUNNING = "running"
    ENDING = "ending"
    """It is being given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine, or a part of one, that is held and paid for as a whole."""

    id: str
    """What the Ray cluster calls it in its label `headwater-node`, or else its id there."""
    instance: str
    """Which type it is of."""
    num_devices: int
    state: NodeState
    launched_s: float
    """Since when it is charged, in seconds since 1970."""
    is_spot: bool = False
    taken_s: float | None = None
    """When it will be taken back, in seconds since 1970, where that was announced."""
    study: str = ""
    """For whom it was launched."""
    lease_s: float | None = None
    """When it ends by itself unless its study is heard of, in seconds since 1970; None: with the study."""


class Cluster(Protocol):
    """Nodes that come and go while a study trains on the Ray cluster that they join.

    Nobody but the cluster knows which nodes there are: whoever asks is told what is really there, also what a process
    that was killed has left.
    """

    def start(self, study: str) -> str | None:
        """Have a Ray cluster for this study; return its address, None for the one that this process is connected to.

        No node is launched by it. A cluster is started once, before anything else is asked of it.
        """

    def list_nodes(self) -> Sequence[Node]:
        """Return the nodes of the study that are asked for or there, and are not being given back.

        Whoever asks is alive: nodes that cost money are kept for as long as this is asked every minute or so, and end
        by themselves some time after it is asked no more.
        """

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        """Ask for so many further nodes; they are listed from now on, and join the Ray cluster when they are ready.

        Return how many were to be had; for the rest it is to be asked again. They are spot instances where the cluster
        is set to these, unless they are to be on demand.
        """

    def release(self, nodes: Sequence[Node]) -> None:
        """Give nodes back, whatever still runs there; to give one back twice does nothing."""

    def close(self) -> None:
        """Give everything back, the Ray cluster too if it was started here."""
