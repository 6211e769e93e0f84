"""Folders that go when nobody holds them any more, those of processes that were killed included.

Whoever makes such a folder holds a lock on a file in it for as long as it lives. The system gives the lock back however
a process ends, so that the next one to make a folder can tell which of the others belong to nobody.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "headwater-"
MEMORY = Path("/dev/shm")
OWNER = "owner"
"""The file in each folder that is locked."""
SETTLED_S = 60.0
"""A folder that is younger than this may have an owner who is about to lock it."""


class TemporaryFolder:
    """A folder of this process that others see: on the disk, or in memory where the system has such folders."""

    def __init__(self, *, in_memory: bool = False) -> None:
        is_there = in_memory and os.access(MEMORY, os.W_OK)
        parent = MEMORY if is_there else Path(tempfile.gettempdir())
        _sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._owner = _lock(self.path / OWNER)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove folders whose owners were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # of somebody else, or gone by now
            owner = folder / OWNER
            if owner.exists() and time.time() - folder.stat().st_mtime > SETTLED_S:
                lock = _lock(owner)
                if lock is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)


def _lock(path: Path) -> int | None:
    """Return the lock on a file while nobody has it; None where somebody does, or the system has no locks."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
