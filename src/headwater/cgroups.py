"""The limits that control groups of Linux, and so containers and batch systems, set to the memory of this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROC = Path("/proc")


class GroupFiles(NamedTuple):
    """What a version of control groups calls the files of one group."""

    limit: str
    usage: str
    cache: str
    """The entry of `memory.stat` with what the system takes back first: files that were read and are not in use."""


_FILES = {
    "cgroup2": GroupFiles("memory.max", "memory.current", "inactive_file"),
    "cgroup": GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_in_cgroups(proc: Path = PROC) -> int | None:
    """Return how many bytes the control groups of this process still allow it; None where none has a limit.

    The limit of every group above counts too, with what all processes in it use. `proc` is where the system tells.
    """
    free = [room for files, group in list_groups(proc) if (room := _free_in(group, files)) is not None]
    return min(free, default=None)


def list_groups(proc: Path = PROC) -> Iterator[tuple[GroupFiles, Path]]:
    """Yield the directory of each group that this process is in, with those above it after it."""
    try:
        memberships = (proc / "self" / "cgroup").read_text().splitlines()
        mounts = (proc / "self" / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        kind = "cgroup2" if not controllers else "cgroup"
        if kind == "cgroup" and "memory" not in controllers.split(","):
            continue
        for root, point in _find_mounts(mounts, kind):
            inside = _path_inside(PurePosixPath(path), PurePosixPath(root))
            for group in (inside, *inside.parents):
                yield _FILES[kind], Path(point) / group


def _find_mounts(mounts: list[str], kind: str) -> Iterator[tuple[str, str]]:
    """Yield which part of the tree of groups is mounted, and where; a container sees its own part only."""
    for mount in mounts:
        fields, _, rest = mount.partition(" - ")
        system, *_, options = rest.split(" ")
        if system == kind and (kind == "cgroup2" or "memory" in options.split(",")):
            root, point = (re.sub(r"\\040", " ", field) for field in fields.split(" ")[3:5])
            yield root, point


def _path_inside(path: PurePosixPath, root: PurePosixPath) -> PurePosixPath:
    """Return where a group lies below what is mounted; where it lies outside, what is mounted is its own part."""
    return path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()


def _free_in(group: Path, files: GroupFiles) -> int | None:
    limit, usage = _read_number(group / files.limit), _read_number(group / files.usage)
    if limit is None or usage is None:
        return None
    try:
        cache = re.search(rf"^{files.cache} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
    except OSError:
        cache = None
    return max(limit - usage + (int(cache[1]) if cache else 0), 0)


def _read_number(path: Path) -> int | None:
    """Read a number; None where there is none, as in groups without a limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
