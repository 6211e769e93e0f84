"""A Ray cluster of two nodes for studies that faults befall, kept by a process of its own: this module, when run."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from tests.execute.calling import python_environment
from tests.execute.clusters import add_node, await_truth, count_reserved, open_cluster

NUM_NODES = 2


class KeptCluster:
    """What the campaign says to the keeper; the cluster ends with this process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.faults.clusters"]
        pipe, environment = subprocess.PIPE, python_environment()
        self._keeper = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.address = self._hear()

    def mend(self) -> None:
        """Have nodes that are gone replaced."""
        self._ask("mend")

    def await_empty(self) -> str:
        """Wait until no placement group is held and no actor runs; say what is left if that takes too long."""
        return self._ask("empty")

    def _ask(self, what: str) -> str:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{what}\n")
        self._keeper.stdin.flush()
        return self._hear()

    def _hear(self) -> str:
        assert self._keeper.stdout is not None
        answer = self._keeper.stdout.readline()
        assert answer, "the process that keeps the cluster has ended"
        return answer.rstrip("\n")


@cache
def find_cluster() -> KeptCluster:
    """Return the cluster of this process."""
    return KeptCluster()


def keep_cluster(orders: TextIO, answers: TextIO) -> None:
    """Keep a cluster until there are no more orders."""
    with open_cluster() as cluster:
        answers.write(f"{cluster.address}\n")
        answers.flush()
        for order in orders:
            answers.write(f"{_mend(cluster) if order.strip() == 'mend' else _await_empty(cluster)}\n")
            answers.flush()


def _mend(cluster: Any) -> str:  # Any: Ray has no types
    import ray

    for node in list(cluster.list_all_nodes()):
        if node.all_processes["raylet"][0].process.poll() is not None:
            cluster.remove_node(node, allow_graceful=False)
            add_node(cluster)
    await_truth(lambda: sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes()) == NUM_NODES)
    return "mended"


def _await_empty(cluster: Any) -> str:  # Any: as above
    try:
        await_truth(lambda: count_reserved() == 0 and not _list_actors(cluster))
    except AssertionError:
        return f"{count_reserved()} placement groups and the processes {_list_actors(cluster)} are left"
    return ""


def _list_actors(cluster: Any) -> list[str]:  # Any: as above
    """Return the processes of Ray's nodes that run something."""
    raylets = {str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()}
    return [title for parent, title in _list_processes() if parent in raylets and title.startswith("ray::_Actor")]


def _list_processes() -> list[tuple[str, str]]:
    """Return the parent and the title of every process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            found.append((parent, (path / "cmdline").read_text()))
        except OSError:  # it has ended meanwhile
            continue
    return found


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Ray prints is no answer
    keep_cluster(sys.stdin, output)
