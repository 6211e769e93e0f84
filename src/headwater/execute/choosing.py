"""Which executor a name stands for, on this machine."""

from __future__ import annotations

import multiprocessing
import os

from headwater.errors import StudyError
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.sites import Executor

EXECUTORS = ("inline", "processes")


def check_executor(executor: object) -> None:
    """Refuse what cannot run packs.

    Raises:
        StudyError: It is neither the name of an executor nor one.
    """
    is_one = hasattr(executor, "run") and hasattr(executor, "num_workers") and not isinstance(executor, type)
    if not is_one and not (isinstance(executor, str) and executor in EXECUTORS):
        names = ", ".join(map(repr, EXECUTORS))
        raise StudyError(f"executor is {executor!r}; it must be one of {names}, or an executor: ProcessExecutor(2)")


def build_executor(executor: str | Executor, device: str) -> Executor:
    """Return the executor of this name, or the one that is given, for trials on a device of this type.

    Raises:
        StudyError: It cannot run there.
    """
    built = executor
    if isinstance(built, str):
        built = InlineExecutor() if built == "inline" else ProcessExecutor(count_cores())
    if isinstance(built, ProcessExecutor) and device != "cpu":
        raise StudyError(f"executor 'processes' trains on the CPU, not on {device!r}; set device='cpu' or use 'inline'")
    if isinstance(built, ProcessExecutor) and multiprocessing.current_process().daemon:
        raise StudyError("executor 'processes' cannot start any from a daemonic process; use 'inline' here")
    if isinstance(built, ProcessExecutor) and "fork" not in multiprocessing.get_all_start_methods():
        raise StudyError("executor 'processes' needs a system that can fork processes; use 'inline' here")
    return built


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
