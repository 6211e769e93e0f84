"""Copies of data files on a machine that does not have the sender's: one for all of its processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import StoreError


def copy_data_file(name: str, fetch: Callable[[], memoryview]) -> str:
    """Return where this machine has its copy of the sender's file of this name, and fetch it if there is none."""
    with _locking() as folder:
        path = folder / _name_copy(name)
        if not path.exists():
            handle, unfinished = tempfile.mkstemp(dir=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(fetch())
                Path(unfinished).replace(path)
            finally:
                Path(unfinished).unlink(missing_ok=True)
    return str(path)


def remove_copies(names: Iterable[str]) -> None:
    """Remove the copies of these files; whoever has mapped one keeps what is in it."""
    with _locking() as folder:
        for name in names:
            (folder / _name_copy(name)).unlink(missing_ok=True)
        with suppress(OSError):  # others have some
            folder.rmdir()


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
