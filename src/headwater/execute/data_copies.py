"""Copies of data files on a machine that does not have the sender's: one for all of its processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from headwater.errors import StoreError


class DataCopies:
    """The copies that this process uses; it holds each by a lock, which the system drops when the process dies.

    Whoever comes next removes what nobody holds, so that a study that was killed leaves nothing for long.
    """

    def __init__(self) -> None:
        self._held: dict[str, BinaryIO] = {}

    def have(self, name: str, fetch: Callable[[], memoryview]) -> str:
        """Return where this machine has its copy of the sender's file of this name, and fetch it if there is none."""
        with _locking() as folder:
            path = folder / _name_copy(name)
            if name not in self._held or not path.exists():
                _sweep(folder)
                if not path.exists():
                    _write(path, fetch)
                self._let_go(name)
                self._held[name] = file = path.open("rb")
                fcntl.flock(file, fcntl.LOCK_SH)
        return str(path)

    def remove(self, names: Iterable[str] = ()) -> None:
        """Remove the copies of these files, which stay with whoever has mapped them, and all that nobody holds."""
        with _locking() as folder:
            for name in names:
                self._let_go(name)
                (folder / _name_copy(name)).unlink(missing_ok=True)
            _sweep(folder)
            with suppress(OSError):  # others have some
                folder.rmdir()

    def close(self) -> None:
        """Let go of all copies."""
        for name in list(self._held):
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        if name in self._held:
            self._held.pop(name).close()


def _write(path: Path, fetch: Callable[[], memoryview]) -> None:
    handle, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(fetch())
        Path(unfinished).replace(path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what no process holds any more; whoever writes has the folder, so nothing is half written."""
    for path in folder.iterdir():
        with path.open("rb") as file, suppress(BlockingIOError):  # it is in use
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _name_copy(name: str) -> str:
    """Return a name for the copy, with the sender's folder: the end of one run takes nothing from another."""
    path = Path(name)
    return f"{path.parent.name}-{path.name}"


@contextmanager
def _locking() -> Iterator[Path]:
    """Have the folder of this user's copies for this process alone."""
    folder = Path(tempfile.gettempdir()) / f"headwater-copies-{os.getuid()}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # it was removed meanwhile
            continue
        except OSError as error:
            raise StoreError(f"{folder} is no folder; have it removed, or set TMPDIR to another place") from error
        try:
            if os.fstat(number).st_uid != os.getuid():
                raise StoreError(f"{folder} is another user's; have it removed, or set TMPDIR to another place")
            fcntl.flock(number, fcntl.LOCK_EX)
            if folder.exists() and os.path.samestat(os.fstat(number), folder.stat()):  # else it was removed meanwhile
                yield folder
                return
        finally:
            os.close(number)
