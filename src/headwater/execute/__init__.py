"""Runs placements on devices and tells what happens; decides nothing."""

from headwater.execute.choosing import EXECUTORS, build_executor, check_executor, count_cores, read_workers
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.protocol import Executor

__all__ = [
    "EXECUTORS",
    "Executor",
    "InlineExecutor",
    "ProcessExecutor",
    "build_executor",
    "check_executor",
    "count_cores",
    "read_workers",
]
