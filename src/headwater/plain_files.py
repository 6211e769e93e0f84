"""Reading a file that a user or another file has named, if it is a plain one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_plain(path: Path, most_bytes: int | None = None, *, follow_links: bool = True) -> bytes:
    """Return what a file holds. Opening a pipe may never return, and reading a device may never end.

    Args:
        path: The file.
        most_bytes: A larger file is refused; None for no limit.
        follow_links: Whether the path may be a link to the file.

    Raises:
        OSError: It is no file, too large, or cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    number = os.open(path, flags)
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, where a file belongs", str(path))
        if most_bytes is not None and found.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
        return file.read() if most_bytes is None else file.read(most_bytes)
