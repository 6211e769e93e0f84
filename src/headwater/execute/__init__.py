"""Runs groups on devices and reports; decides nothing."""

from headwater.execute.choosing import EXECUTORS, build_executor, check_executor, count_cores, read_workers
from headwater.execute.inline import InlineExecutor
from headwater.execute.lines import Line
from headwater.execute.processes import ProcessExecutor
from headwater.execute.sites import Attendant, Executor, Site

__all__ = [
    "EXECUTORS",
    "Attendant",
    "Executor",
    "InlineExecutor",
    "Line",
    "ProcessExecutor",
    "Site",
    "build_executor",
    "check_executor",
    "count_cores",
    "read_workers",
]
