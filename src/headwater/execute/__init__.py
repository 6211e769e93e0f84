"""Runs placements on devices and tells what happens; decides nothing."""

from headwater.execute.auto import AutoExecutor
from headwater.execute.choosing import EXECUTORS, build_executor, check_executor, find_service, find_workers_kind
from headwater.execute.counting import count_cores
from headwater.execute.elastic_executor import ElasticExecutor
from headwater.execute.inline import InlineExecutor
from headwater.execute.join_executor import JoinExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.protocol import Executor
from headwater.execute.ray_executor import RayExecutor
from headwater.execute.service import Service
from headwater.execute.simulated import DeviceJoin, DeviceLeave, DeviceLoss, SimulatedClock, SimulatedExecutor
from headwater.execute.simulated_times import SimulatedTimes, read_epoch_times
from headwater.execute.slurm_executor import SlurmExecutor

__all__ = [
    "EXECUTORS",
    "AutoExecutor",
    "DeviceJoin",
    "DeviceLeave",
    "DeviceLoss",
    "ElasticExecutor",
    "Executor",
    "InlineExecutor",
    "JoinExecutor",
    "ProcessExecutor",
    "RayExecutor",
    "Service",
    "SimulatedClock",
    "SimulatedExecutor",
    "SimulatedTimes",
    "SlurmExecutor",
    "build_executor",
    "check_executor",
    "count_cores",
    "find_service",
    "find_workers_kind",
    "read_epoch_times",
]
