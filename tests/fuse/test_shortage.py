"""Which exceptions say that memory has run out."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import torch

from headwater.fuse.shortage import is_out_of_memory


def allocate_too_much() -> None:
    torch.empty(1 << 60)


def wrap_memory_error() -> None:
    try:
        raise MemoryError
    except MemoryError as error:
        raise ValueError("the batch could not be built") from error


def fail_to_fork() -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def lose_a_worker() -> None:
    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")


def run_out_on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    "function", [allocate_too_much, wrap_memory_error, fail_to_fork, lose_a_worker, run_out_on_a_gpu]
)
def test_running_out_of_memory_is_recognised(function: Callable[[], None]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each is another
        function()
    assert is_out_of_memory(caught.value)


def test_other_errors_are_others() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(caught.value)
    assert not is_out_of_memory(OSError(errno.ENOSPC, "No space left on device"))
