"""Running out of memory, for real: in a control group of version 1, in which Linux kills who takes more."""

from __future__ import annotations

import os
from pathlib import Path

ROOM_BYTES = 16 << 20


def can_limit_memory() -> bool:
    """Whether this process may make a control group."""
    group = _find_own()
    if group is None:
        return False
    probe = group / f"headwater-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def exhaust_memory(folder: Path) -> None:
    """Take more memory than there is: Linux ends this process."""
    group = _find_group(folder)
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(ROOM_BYTES))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    taken = [b"x" * (1 << 20) for _ in range(8 * ROOM_BYTES >> 20)]
    raise AssertionError(f"{len(taken)} MiB were more than there was, and Linux has not ended this process")


def remove_group(folder: Path) -> None:
    group = _find_group(folder)
    if group.exists():
        group.rmdir()


def _find_group(folder: Path) -> Path:
    own = _find_own()
    assert own is not None
    return own / folder.name


def _find_own() -> Path | None:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, controllers, path in lines if controllers == "memory"), None)
    return None if own is None else Path(f"/sys/fs/cgroup/memory{own}")
