"""A limit to the memory of all processes of a study together: a control group of Linux for each, where one can be made.

They lie below the group that the service itself is in, which it must be allowed to change: as root, in a container
whose control groups can be written, or under systemd with `Delegate=yes`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.cgroups import PROC, list_groups

PREFIX = "headwater-"
KEEPER = f"{PREFIX}service"
"""Where the service itself is: in version 2, a group with processes can limit none below it."""
_SWAP = {"memory.max": ("memory.swap.max", "0"), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", None)}
"""By the file with the limit, that which keeps memory from going to the disk instead; None: the same number."""


@dataclass(frozen=True, slots=True)
class MemoryGroups:
    """Makes a control group for each study."""

    base: Path
    limit: str
    """What the file with the limit of a group is called."""

    def add(self, study: str, pid: int, memory_bytes: int) -> None:
        """Put a process, and all that it starts from then on, into the group of a study."""
        group = self.base / f"{PREFIX}{study}"
        group.mkdir(exist_ok=True)
        (group / self.limit).write_text(str(memory_bytes))
        swap, value = _SWAP[self.limit]
        if (group / swap).exists():
            with suppress(OSError):  # of version 1, where it must not be below what is used
                (group / swap).write_text(value or str(memory_bytes))
        (group / "cgroup.procs").write_text(str(pid))

    def remove_empty(self) -> None:
        """Remove the groups that have no processes any more."""
        for group in self.base.glob(f"{PREFIX}*"):
            if group.name != KEEPER:
                with suppress(OSError):
                    group.rmdir()


def find_memory_groups(proc: Path = PROC) -> MemoryGroups | None:
    """Return where groups can be made that limit memory; None where they cannot."""
    seen: set[str] = set()
    for files, group in list_groups(proc):
        if files.limit in seen:
            continue  # above the group that this process is in
        seen.add(files.limit)
        base = group.parent if group.name == KEEPER else group
        if files.limit == "memory.max" and not _delegate(base):
            continue
        if _can_limit(base, files.limit):
            return MemoryGroups(base, files.limit)
    return None


def _delegate(base: Path) -> bool:
    """Have groups below this one limit memory, as version 2 wants to be told."""
    control = base / "cgroup.subtree_control"
    try:
        if "memory" in control.read_text().split():
            return True
        if "memory" not in (base / "cgroup.controllers").read_text().split():
            return False
        (base / KEEPER).mkdir(exist_ok=True)
        (base / KEEPER / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text("+memory")
    except OSError:
        with suppress(OSError):  # others are in the group too: stay with them
            (base / "cgroup.procs").write_text(str(os.getpid()))
            (base / KEEPER).rmdir()
        return False
    return True


def _can_limit(base: Path, limit: str) -> bool:
    probe = base / f"{PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        try:
            (probe / limit).write_text(str(2**40))
        finally:
            probe.rmdir()
    except OSError:
        return False
    return True
