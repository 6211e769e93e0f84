"""Limits of control groups are read from whatever tree the system shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cgroups import free_in_cgroups


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build_tree(tmp_path: Path, membership: str, mount: str) -> Path:
    """Write what Linux shows of a process under /proc; `mount` names its root and its kind."""
    root, _, kind = mount.partition(" ")
    write(tmp_path / "proc/self/cgroup", f"7:pids:/other\n{membership}\n")
    lines = [f"30 23 0:26 {root} {tmp_path}/fs rw,relatime shared:4 - {kind}", "31 23 0:1 / /proc rw - proc proc rw"]
    write(tmp_path / "proc/self/mountinfo", "\n".join(lines) + "\n")
    return tmp_path / "proc"


def limit(group: Path, limit: str, usage: int, cache: int = 0) -> None:
    write(group / "memory.max", f"{limit}\n")
    write(group / "memory.current", f"{usage}\n")
    write(group / "memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 9\n")


def limit_v1(group: Path, limit: int, usage: int, cache: int = 0) -> None:
    write(group / "memory.limit_in_bytes", f"{limit}\n")
    write(group / "memory.usage_in_bytes", f"{usage}\n")
    write(group / "memory.stat", f"inactive_file 1\ntotal_inactive_file {cache}\n")


V2 = "/ cgroup2 cgroup2 rw,nsdelegate"
V1 = "/ cgroup cgroup rw,memory"


def test_what_can_be_taken_back_from_the_cache_of_files_is_free(tmp_path: Path) -> None:
    proc = build_tree(tmp_path, "0::/user/study", V2)
    limit(tmp_path / "fs/user/study", "1000", 700, cache=200)
    assert free_in_cgroups(proc) == 500


def test_the_tightest_of_all_groups_above_counts(tmp_path: Path) -> None:
    proc = build_tree(tmp_path, "0::/user/study", V2)
    limit(tmp_path / "fs/user/study", "max", 700)
    limit(tmp_path / "fs/user", "2000", 1900)
    assert free_in_cgroups(proc) == 100


def test_a_group_over_its_limit_has_nothing_free(tmp_path: Path) -> None:
    proc = build_tree(tmp_path, "0::/study", V2)
    limit(tmp_path / "fs/study", "1000", 1200)
    assert free_in_cgroups(proc) == 0


def test_version_1_is_read_too(tmp_path: Path) -> None:
    proc = build_tree(tmp_path, "4:memory:/docker/abc", V1)
    limit_v1(tmp_path / "fs/docker/abc", 1000, 700, cache=50)
    limit_v1(tmp_path / "fs", 9223372036854771712, 10**6)
    assert free_in_cgroups(proc) == 350


@pytest.mark.parametrize("membership", ["4:memory:/docker/abc", "4:memory:/docker/abc/study", "4:memory:/"])
def test_a_container_sees_its_own_part_of_the_tree(tmp_path: Path, membership: str) -> None:
    proc = build_tree(tmp_path, membership, "/docker/abc cgroup cgroup rw,memory")
    limit_v1(tmp_path / "fs", 1000, 700)
    assert free_in_cgroups(proc) == 300


@pytest.mark.parametrize("mount", [V2, "/ cgroup cgroup rw,cpu"])
def test_without_limits_nothing_is_said(tmp_path: Path, mount: str) -> None:
    assert free_in_cgroups(build_tree(tmp_path, "4:memory:/study", mount)) is None
    assert free_in_cgroups(tmp_path / "nowhere") is None
