"""Running a process only while nobody else wants its core: the class SCHED_IDLE of Linux, and what stands in its way.

Classes are compared inside of a group of processes, and the system makes such groups: one for each session where
/proc/sys/kernel/sched_autogroup_enabled is 1, and one for each control group with a share of the CPU. Across two of
them a process of this class gets as much as any other. So a filler shares the session of its host; or it has one of its
own, whose weight is the least there is; and it is refused where the two are in different control groups.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from headwater.errors import StudyError
from headwater.stalls import LentStage

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
LEAST_NICE = 19
"""What gives a session the least weight: 15, where it has 1024 by default."""
NUM_TRIES = 50
TRY_EVERY_S = 0.05
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def check_reach(host: LentStage) -> None:
    """Refuse a host beside which this process's children cannot run unnoticed.

    Raises:
        StudyError: This is not Linux, or the host is in another control group.
    """
    if not hasattr(os, "SCHED_IDLE"):
        raise StudyError("the bubbles of a CPU can be used on Linux only, by its class SCHED_IDLE")
    ours, theirs = (find_cpu_group(who) for who in ("self", str(host.pid)))
    if theirs is not None and ours != theirs:
        raise StudyError(
            f"the pipeline's process {host.pid} is in the control group {theirs} and this one in {ours}, each with its "
            "own share of the CPU, so trials would slow the pipeline; start the study in the same container or slice"
        )


def needs_session(host: LentStage) -> bool:
    """Tell whether a filler must have a session of its own: the host is in another than this process."""
    if not _has_autogroups():
        return False
    with suppress(ProcessLookupError, PermissionError):
        return os.getsid(host.pid) != os.getsid(0)
    return False  # the host has ended, and nobody is to be spared


def step_back(pid: int, host: LentStage) -> None:
    """Let a process that has just started run on the host's cores, and only while nobody else wants to."""
    with suppress(ProcessLookupError):  # it has ended already, which whoever listens to it will see
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(pid, host.cores)
        if needs_session(host):
            _weigh_least(PROC / str(pid) / "autogroup")


def find_cpu_group(pid: str, proc: Path = PROC, mounts: Path = CGROUPS) -> str | None:
    """Return the control group that shares the CPU with others, of a process; None where the system does not tell."""
    try:
        lines = (proc / pid / "cgroup").read_text().splitlines()
    except OSError:
        return None
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    for controllers, path in paths.items():
        if "cpu" in controllers.split(","):
            return path
    return None if "" not in paths else _find_shared(paths[""], mounts)


def _find_shared(path: str, mounts: Path) -> str:
    """Return the deepest group above, or this one, that has a share of the CPU of its own."""
    parts = Path(path).relative_to("/").parts
    for depth in range(len(parts), 0, -1):
        control = mounts.joinpath(*parts[: depth - 1], "cgroup.subtree_control")
        with suppress(OSError):
            if "cpu" in control.read_text().split():
                return "/" + "/".join(parts[:depth])
    return "/"


def _weigh_least(autogroup: Path) -> None:
    """Give a session the least weight; the system lets a user do so ten times in a second."""
    for _ in range(NUM_TRIES - 1):
        with suppress(BlockingIOError):
            autogroup.write_text(str(LEAST_NICE))
            return
        time.sleep(TRY_EVERY_S)
    autogroup.write_text(str(LEAST_NICE))


def _has_autogroups() -> bool:
    try:
        return AUTOGROUP.read_text().strip() == "1"
    except OSError:
        return False
