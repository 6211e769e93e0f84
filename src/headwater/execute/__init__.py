"""Runs placements on devices and tells what happens; decides nothing."""

from typing import TYPE_CHECKING

from headwater.late import load_late

if TYPE_CHECKING:
    from headwater.execute.auto import AutoExecutor
    from headwater.execute.choosing import EXECUTORS, build_executor, check_executor, find_service
    from headwater.execute.counting import count_cores
    from headwater.execute.elastic_executor import ElasticExecutor
    from headwater.execute.inline import InlineExecutor
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
    "read_epoch_times",
]

if not TYPE_CHECKING:
    __getattr__ = load_late(
        __name__,
        {
            "EXECUTORS": "choosing",
            "AutoExecutor": "auto",
            "DeviceJoin": "simulated",
            "DeviceLeave": "simulated",
            "DeviceLoss": "simulated",
            "ElasticExecutor": "elastic_executor",
            "Executor": "protocol",
            "InlineExecutor": "inline",
            "ProcessExecutor": "processes",
            "RayExecutor": "ray_executor",
            "Service": "service",
            "SimulatedClock": "simulated",
            "SimulatedExecutor": "simulated",
            "SimulatedTimes": "simulated_times",
            "SlurmExecutor": "slurm_executor",
            "build_executor": "choosing",
            "check_executor": "choosing",
            "count_cores": "counting",
            "find_service": "choosing",
            "read_epoch_times": "simulated_times",
        },
    )
