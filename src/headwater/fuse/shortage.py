"""How running out of memory shows, on whatever device and in whatever library."""

from __future__ import annotations

import errno
import re

import torch

_SAYINGS = re.compile(
    r"out of memory|not enough memory|cannot allocate memory|can't allocate memory|DefaultCPUAllocator|bad_alloc"
    r"|killed by signal: Killed",
    re.IGNORECASE,
)
"""What torch and its libraries say; the last is what a DataLoader says of a worker that the system has killed."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an exception, or one that it came of, says that memory has run out."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if _says_so(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and _SAYINGS.search(str(error)) is not None
