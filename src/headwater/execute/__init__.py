"""Runs placements on devices and tells what happens; decides nothing."""

from headwater.execute.auto import AutoExecutor
from headwater.execute.choosing import EXECUTORS, build_executor, check_executor, count_cores
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.protocol import Executor
from headwater.execute.ray_executor import RayExecutor

__all__ = [
    "EXECUTORS",
    "AutoExecutor",
    "Executor",
    "InlineExecutor",
    "ProcessExecutor",
    "RayExecutor",
    "build_executor",
    "check_executor",
    "count_cores",
]
