"""Which executor a name stands for, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from headwater.errors import StudyError
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.protocol import Executor

EXECUTORS = ("inline", "processes")


def check_executor(executor: object) -> None:
    """Refuse what cannot run placements.

    Raises:
        StudyError: It is neither the name of an executor nor one.
    """
    is_one = all(hasattr(executor, name) for name in ("list_devices", "run", "close"))
    if isinstance(executor, type) or not (is_one or (isinstance(executor, str) and executor in EXECUTORS)):
        names = ", ".join(map(repr, EXECUTORS))
        raise StudyError(f"executor is {executor!r}; it must be one of {names}, or an executor: ProcessExecutor(2)")


def build_executor(executor: str | Executor, device: str, clock: Callable[[], float] = time.perf_counter) -> Executor:
    """Return the executor of this name, or the one that is given, for trials on a device of this type.

    Raises:
        StudyError: It cannot run there.
    """
    if not isinstance(executor, str):
        return executor
    if executor == "inline":
        return InlineExecutor(clock=clock)
    return ProcessExecutor(count_cores() if device == "cpu" else count_gpus(), kind=device, clock=clock)


def read_workers(text: str) -> str | Executor:
    """Return the executor for a number of workers that was typed: "auto", or how many.

    Raises:
        StudyError: It is neither.
    """
    if text == "auto":
        return "processes"
    if not (text.isascii() and text.isdecimal()):
        raise StudyError(f"workers is {text!r}; it must be 'auto' or a number of at least 1")
    return "inline" if text == "1" else ProcessExecutor(int(text))


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_gpus() -> int:
    """Count the GPUs that torch sees."""
    from headwater.train.machine import count_gpus as count

    return count()
