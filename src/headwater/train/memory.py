"""How much memory there is, and how much a stretch of work takes."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

from headwater import devices
from headwater.cgroups import free_in_cgroups

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_MEMORY = Path("/proc/meminfo")
_LIMITS = Path("/proc/self/limits")

GARBAGE_BYTES = 1 << 26
"""When this process holds so much more than after the last clearing, what ended groups have left is cleared away."""
GARBAGE_SHARE = 0.1
"""The same where less is free, as a share of that."""

SLIGHT_BYTES = 1 << 20
"""What it has grown by less than this since it was last found to be little is not looked at: to ask what is free takes
longer than a small trial."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers by which glibc's malloc.h calls these settings."""


def keep_freed_memory() -> None:
    """Let this process keep what it frees, for the next step takes it again; else glibc returns large tensors at once.

    To get them back page by page takes much of the time of a step on stacks of lanes. Does nothing without glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_MMAP_THRESHOLD, 2**25)  # the largest it takes; larger tensors still come and go


class Clearing:
    """Gives back what groups that have ended leave behind, when it has become much.

    A user's own objects may hold one another in circles, which Python finds when many objects were made, not when much
    memory is held. To look for them takes a fifth of a second, so it is done where memory has grown.
    """

    def __init__(self, held: Callable[[], int] | None = None, free: Callable[[], int | None] | None = None) -> None:
        self._held = held or _held_bytes
        self._free = free or _free_bytes
        self._least: int | None = None
        """What was held after the last clearing."""
        self._sound = 0
        """What was held when circles were last looked for."""
        self._passed = 0
        """What was held when that was last found to be little."""

    def clear(self, *, is_urgent: bool = False) -> None:
        """Give back what is free; look for circles where that is not enough, or where memory has run out."""
        if not is_urgent and not self._has_grown():
            return
        return_freed_memory()
        held = self._held()
        if is_urgent or (self._least is not None and self._is_much(held, self._sound)):
            gc.collect()
            return_freed_memory()
            self._sound = held = self._held()
        if self._least is None:
            self._sound = held
        self._least = self._passed = held

    def _has_grown(self) -> bool:
        if self._least is None:
            return True
        held = self._held()
        if held <= self._passed + SLIGHT_BYTES:
            return False
        if self._is_much(held, self._least):
            return True
        self._passed = held
        return False

    def _is_much(self, held: int, before: int) -> bool:
        free = self._free()
        most = GARBAGE_BYTES if free is None else min(GARBAGE_BYTES, free * GARBAGE_SHARE)
        return held > before + most


def watch_peak(device: torch.device) -> Callable[[], int | None]:
    """Start watching; the returned function tells how many bytes the peak since then lies above the start."""
    if devices.is_accelerator(device):
        devices.reset_peak(device)
        before = devices.allocated_bytes(device)
        return lambda: devices.peak_bytes(device) - before
    return_freed_memory()
    try:
        _CLEAR.write_text("5")  # resets the peak that Linux keeps of this process
    except OSError:
        return lambda: None
    start = _read(_STATUS, "VmRSS")

    def peak() -> int | None:
        high = _read(_STATUS, "VmHWM")
        return None if high is None or start is None else max(high - start, 0)

    return peak


def available_bytes(device: torch.device) -> int | None:
    """Return how much memory could be used now; None where the system does not tell.

    That is what is free on the machine, or less: what control groups (containers, batch systems) and `ulimit -v` allow.
    """
    if devices.is_accelerator(device):
        memory = devices.memory_of(device)
        return None if memory is None else memory[0]
    known = (_read(_MEMORY, "MemAvailable"), free_in_cgroups(), _free_addresses())
    return min((free for free in known if free is not None), default=None)


def return_freed_memory() -> None:
    """Give memory that is free, but kept for the next step, back to the system."""
    devices.empty_cache()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _held_bytes() -> int:
    """Return what this process holds, here and on the GPU; 0 where the system does not tell."""
    return (_read(_STATUS, "VmRSS") or 0) + devices.allocated_bytes()


def _free_bytes() -> int | None:
    return available_bytes(torch.device("cpu"))


def _free_addresses() -> int | None:
    """Return how many more bytes this process may map; None where it may map any number."""
    try:
        limit = re.search(r"^Max address space +(\d+) ", _LIMITS.read_text(), re.MULTILINE)
    except OSError:
        return None
    mapped = _read(_STATUS, "VmSize")
    return None if limit is None or mapped is None else max(int(limit[1]) - mapped, 0)


def _read(path: Path, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
