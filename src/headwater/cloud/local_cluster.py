"""A cluster on this machine: real raylets, a head and nodes that come and go.

Each is a process group of its own under a shell that waits at a pipe. When this process closes the pipe, or dies
however it may, the shell ends the whole group: nothing is ever left behind. The name of the study is on the command
line of the shell, where `list_local_nodes` finds it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from headwater.cloud.protocol import Node, NodeState
from headwater.cloud.ray_settings import NODE_LABEL
from headwater.cloud.raylets import START_RAY, STORE_BYTES, RayHead, Raylet


class LocalCluster:
    """Raylets of this machine, each with so many CPUs; they end with this process.

    Args:
        num_devices: How many CPUs each node has for Ray, whatever the machine has.
        is_spot: Whether nodes count as spot instances, unless they are to be on demand; see `interrupt`.
        store_bytes: How large the object store of each is.
        clock: What nodes are charged by.
    """

    def __init__(
        self,
        num_devices: int = 1,
        *,
        is_spot: bool = False,
        store_bytes: int = STORE_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._num_devices = num_devices
        self._is_spot = is_spot
        self._store_bytes = store_bytes
        self._clock = clock
        self._study = ""
        self._head: RayHead | None = None
        self._nodes: dict[str, tuple[Node, Raylet]] = {}
        self._ending: list[Raylet] = []
        """Those that were told to end, and may not have yet."""
        self._numbers = count()

    def start(self, study: str) -> str:
        """Start the head, which has no CPU itself, and return its address.

        Raises:
            StudyError: It does not answer.
        """
        self._study = study
        self._head = RayHead(study, store_bytes=self._store_bytes)
        return self._head.address

    def list_nodes(self) -> list[Node]:
        """Return the raylets that live."""
        for node, raylet in list(self._nodes.values()):
            if not raylet.is_alive:
                self.release([node])
        return [node for node, _ in self._nodes.values()]

    def launch(self, count: int, *, on_demand: bool = False) -> int:
        """Start so many raylets."""
        for _ in range(count):
            name = f"local-{os.getpid()}-{next(self._numbers)}"
            node = Node(
                id=name,
                instance="local",
                num_devices=self._num_devices,
                state=NodeState.RUNNING,
                launched_s=self._clock(),
                is_spot=self._is_spot and not on_demand,
                study=self._study,
            )
            self._nodes[name] = node, self._run(name)
        return count

    def interrupt(self, name: str, notice_s: float) -> None:
        """Take a node back as a provider does: its end is announced, and comes after so many seconds whatever runs."""
        node, raylet = self._nodes[name]
        self._nodes[name] = replace(node, taken_s=self._clock() + notice_s), raylet
        timer = threading.Timer(notice_s, raylet.kill)
        timer.daemon = True
        timer.start()

    def release(self, nodes: Sequence[Node]) -> None:
        """End these raylets with all that runs there."""
        found = [self._nodes.pop(node.id)[1] for node in nodes if node.id in self._nodes]
        for raylet in found:
            raylet.end()
        self._ending = [raylet for raylet in [*self._ending, *found] if raylet.is_alive]

    def close(self) -> None:
        """End all raylets, the head last."""
        self.release([node for node, _ in self._nodes.values()])
        if self._head is not None:
            self._head.end()
        for raylet in self._ending:
            raylet.wait()
        self._ending.clear()
        if self._head is not None:
            self._head.close()
            self._head = None

    def _run(self, name: str) -> Raylet:
        assert self._head is not None
        options = [
            *(f"--address={self._head.address}", "--node-ip-address=127.0.0.1", f"--labels={NODE_LABEL}={name}"),
            *(f"--num-cpus={self._num_devices}", f"--object-store-memory={self._store_bytes}"),
            f"--temp-dir={self._head.folder / name[-8:]}",  # raylets in one folder fight for its sockets
        ]
        return Raylet(self._study, name, [*START_RAY, *options], self._head.folder / f"{name}.log")


def list_local_nodes(study: str | None = None) -> list[Node]:
    """Return the raylets on this machine that some study of this user has launched, by its process list."""
    nodes = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if len(words) > 5 and words[3] == NODE_LABEL and study in (None, words[4]):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if fields[2] != folder.name:  # not the shell itself, but one that it has started
                    continue
                ticks = int(fields[19])
                since_s = _read_boot_s() + ticks / os.sysconf("SC_CLK_TCK")
                node = Node(
                    id=f"{words[5]}@{folder.name}",
                    instance="local",
                    num_devices=1,
                    state=NodeState.RUNNING,
                    launched_s=since_s,
                    study=words[4],
                )
                nodes.append(node)
    return sorted(nodes, key=lambda node: node.launched_s)


def end_local_nodes(nodes: Sequence[Node]) -> None:
    """End raylets that `list_local_nodes` has found, with all that runs there."""
    for node in nodes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(node.id.rpartition("@")[2]), signal.SIGKILL)


def _read_boot_s() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("btime")).split()[1])
