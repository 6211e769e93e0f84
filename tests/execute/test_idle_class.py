"""Processes that step back really do, whatever groups the system has made of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import StudyError
from headwater.execute import idle_class
from headwater.execute.idle_class import LEAST_NICE, check_reach, find_cpu_group, needs_session, step_back
from headwater.stalls import LentStage

CORE = min(os.sched_getaffinity(0))
HOST = LentStage(stage=0, num_stages=2, pid=os.getpid(), cores=(CORE,))


@contextmanager
def waiting_process(*, has_session: bool) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, start_new_session=has_session
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_process_of_the_hosts_session_becomes_idle_on_the_hosts_cores() -> None:
    assert not needs_session(HOST)
    with waiting_process(has_session=False) as pid:
        step_back(pid, HOST)
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert os.sched_getaffinity(pid) == {CORE}


@pytest.mark.skipif(not idle_class._has_autogroups(), reason="this system makes no groups of sessions")
def test_a_process_of_another_session_has_one_of_its_own_with_the_least_weight() -> None:
    with waiting_process(has_session=True) as host, waiting_process(has_session=True) as pid:
        stranger = replace(HOST, pid=host)
        assert needs_session(stranger)
        step_back(pid, stranger)
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == str(LEAST_NICE)
        assert Path(f"/proc/{host}/autogroup").read_text().split()[-1] == "0"


def test_a_process_that_has_ended_already_is_no_fault() -> None:
    with waiting_process(has_session=False) as pid:
        pass
    step_back(pid, HOST)
    assert not needs_session(replace(HOST, pid=pid))


def test_a_weight_is_given_again_when_the_system_says_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    class Autogroup:
        def write_text(self, text: str) -> None:
            tries.append(text)
            if len(tries) < 3:
                raise BlockingIOError

    monkeypatch.setattr(idle_class, "TRY_EVERY_S", 0.0)
    idle_class._weigh_least(Autogroup())  # type: ignore[arg-type]  # it writes as a path does
    assert tries == [str(LEAST_NICE)] * 3


def write_groups(root: Path, pid: str, text: str) -> None:
    (root / pid).mkdir()
    (root / pid / "cgroup").write_text(text)


def test_the_control_group_that_shares_the_cpu_is_found(tmp_path: Path) -> None:
    write_groups(tmp_path, "1", "4:cpu,cpuacct:/docker/abc\n3:memory:/other\n0::/\n")
    write_groups(tmp_path, "2", "0::/user.slice/shell.scope\n")
    mounts = tmp_path / "mounts"
    (mounts / "user.slice").mkdir(parents=True)
    (mounts / "cgroup.subtree_control").write_text("cpu memory\n")
    (mounts / "user.slice" / "cgroup.subtree_control").write_text("memory\n")
    assert find_cpu_group("1", tmp_path, mounts) == "/docker/abc"
    assert find_cpu_group("2", tmp_path, mounts) == "/user.slice"
    (mounts / "user.slice" / "cgroup.subtree_control").write_text("cpu\n")
    assert find_cpu_group("2", tmp_path, mounts) == "/user.slice/shell.scope"
    assert find_cpu_group("3", tmp_path, mounts) is None


def test_a_host_in_another_control_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reach(HOST)
    monkeypatch.setattr(idle_class, "find_cpu_group", lambda who: "/" if who == "self" else "/docker/abc")
    with pytest.raises(StudyError, match=r"/docker/abc .* would slow the pipeline"):
        check_reach(HOST)
