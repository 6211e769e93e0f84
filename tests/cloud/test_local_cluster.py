"""Raylets of this machine come, go, and never outlive who has started them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.execute.calling import python_environment
from tests.execute.clusters import await_truth

from headwater.cloud.local_cluster import LocalCluster, end_local_nodes, list_local_nodes

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(300)


def list_processes(folder: str) -> list[str]:
    """Return the processes that work in a folder, by their command lines."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        found += [words] if folder in words else []
    return found


def name_nodes(study: str) -> list[str]:
    """Return what the nodes of a study are, the oldest first."""
    return [re.split("[-@]", node.id)[0] for node in list_local_nodes(study)]


def test_nothing_outlives_a_study_that_is_killed() -> None:
    study = f"killed-{uuid4().hex[:8]}"
    script = f"""
import sys
from headwater.cloud.local_cluster import LocalCluster
cluster = LocalCluster()
cluster.start({study!r})
cluster.launch(1)
print(cluster._head.folder, flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=python_environment(), stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            folder = process.stdout.readline().decode().strip()
            await_truth(lambda: name_nodes(study) == ["head", "local"])  # it may have no words to show yet
            await_truth(lambda: sum("raylet/raylet" in words for words in list_processes(folder)) == 2)
        finally:
            process.kill()
    await_truth(lambda: list_local_nodes(study) == [] and list_processes(folder) == [])


def test_a_raylet_that_dies_is_no_node_any_more() -> None:
    study = f"dying-{uuid4().hex[:8]}"
    cluster = LocalCluster()
    try:
        cluster.start(study)
        cluster.launch(1)
        await_truth(lambda: name_nodes(study) == ["head", "local"])  # it may have no words to show yet
        end_local_nodes(list_local_nodes(study)[1:])
        await_truth(lambda: cluster.list_nodes() == [])
    finally:
        cluster.close()
    await_truth(lambda: list_local_nodes(study) == [])
