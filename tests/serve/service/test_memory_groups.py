"""Control groups, in which all processes of a study share one limit: real ones where this process may make them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.service.test_limits import run_alone

from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.isolation import Limits
from headwater.serve.service.memory_groups import KEEPER, MemoryGroups, find_memory_groups

MIB = 2**20
GROUPS = find_memory_groups()
needs_groups = pytest.mark.skipif(GROUPS is None, reason="needs control groups that can be made")

TAKE = "import sys; taken = bytearray(int(sys.argv[1]) << 20); print(len(taken), flush=True); sys.stdin.read()"
"""Takes memory, says so, and keeps it."""
STUDY_PROCESS = f"""
import subprocess, sys
sys.stdin.readline()
children = []
for _ in range(int(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-S", "-c", {TAKE!r}, "48"], stdin=-1, stdout=-1)
    child.stdout.readline()
    children.append(child)
for child in children:
    child.stdin.close()
print(sum(child.wait() == 0 for child in children))
"""
"""Has children that take 48 MiB each, one after the other; says how many of them have lived to the end."""


@pytest.fixture
def groups() -> Iterator[MemoryGroups]:
    assert GROUPS is not None
    yield GROUPS
    GROUPS.remove_empty()


def count_living(groups: MemoryGroups, num_children: int, limit_bytes: int) -> int:
    name = f"test-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", STUDY_PROCESS, str(num_children)], stdin=-1, stdout=-1, text=True
    ) as process:
        groups.add(name, process.pid, limit_bytes)
        told, _ = process.communicate("go\n")
    groups.remove_empty()
    assert not (groups.base / f"headwater-{name}").exists()
    return int(told)


@needs_groups
def test_processes_of_a_study_may_take_no_more_together_than_one_alone(groups: MemoryGroups) -> None:
    assert count_living(groups, 1, 96 * MIB) == 1
    assert count_living(groups, 3, 96 * MIB) < 3
    assert count_living(groups, 3, 256 * MIB) == 3


@needs_groups
@pytest.mark.timeout(300)
def test_what_a_study_runs_is_in_its_group(groups: MemoryGroups, open_folder: Path) -> None:
    source = 'import json, sys\nprint("FOUND" + json.dumps({"in": open("/proc/self/cgroup").read()}))\nsys.exit(2)\n'
    limits = Limits(memory_bytes=4 * 2**30, groups=groups)
    assert "headwater-greedy" in run_alone(StudyFolder(path=open_folder / "greedy", uid=None), source, limits)["in"]
    assert not (groups.base / "headwater-greedy").exists()


def make_tree(path: Path, controllers: str) -> tuple[Path, Path]:
    """Write down what version 2 shows of a group: what the system tells, and the group."""
    group = path / "tree" / "service.slice"
    group.mkdir(parents=True)
    for name, text in (("cgroup.controllers", controllers), ("cgroup.subtree_control", ""), ("cgroup.procs", "")):
        (group / name).write_text(text)
    own = path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text("0::/service.slice\n")
    (own / "mountinfo").write_text(f"1 1 0:1 / {path / 'tree'} rw - cgroup2 cgroup2 rw\n")
    return path / "proc", group


def test_a_service_that_shares_no_group_moves_aside_so_that_groups_below_can_have_limits(tmp_path: Path) -> None:
    """A file tree is no control group: it takes every file, so the probe cannot be removed and nothing is found."""
    proc, group = make_tree(tmp_path, "cpu memory")
    assert find_memory_groups(proc) is None
    assert (group / KEEPER / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.subtree_control").read_text() == "+memory"


def test_where_memory_cannot_be_limited_nothing_is_moved(tmp_path: Path) -> None:
    proc, group = make_tree(tmp_path, "cpu pids")
    assert find_memory_groups(proc) is None
    assert not (group / KEEPER).exists()


def test_a_system_without_control_groups_has_none(tmp_path: Path) -> None:
    assert find_memory_groups(tmp_path) is None
