"""Which executor a name stands for."""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.errors import StudyError
from headwater.execute.auto import AutoExecutor
from headwater.execute.counting import count_devices
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.execute.protocol import Executor
from headwater.execute.ray_executor import RayExecutor
from headwater.execute.service import SCHEMES, Service
from headwater.execute.slurm_executor import SlurmExecutor
from headwater.trials import Device

ELSEWHERE = ("ray", "slurm")
"""Those whose devices are not this machine's own."""
EXECUTORS = ("auto", "inline", "processes", *ELSEWHERE)


def check_executor(executor: object) -> None:
    """Refuse what cannot run placements.

    Raises:
        StudyError: It is neither the name of an executor nor one.
    """
    is_one = all(hasattr(executor, name) for name in ("list_devices", "run", "close"))
    is_named = isinstance(executor, str) and executor in EXECUTORS
    if isinstance(executor, type) or not (is_one or is_named or find_service(executor) is not None):
        names = ", ".join(map(repr, EXECUTORS))
        raise StudyError(f"executor is {executor!r}; it must be one of {names}, or an executor: ProcessExecutor(2)")


def find_service(executor: object) -> Service | None:
    """Return the service that an executor or its URL stands for; None where it stands for none.

    Raises:
        ServiceError: It is a URL, but not that of a service.
    """
    is_url = isinstance(executor, str) and executor.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))
    return Service(str(executor)) if is_url else executor if isinstance(executor, Service) else None


def find_workers_kind(executor: object, device: str) -> str | None:
    """Return what workers on other machines train on, which this one need not have; None where that decides.

    Raises:
        StudyError: They train on something else than the study asks for.
    """
    asked = device.partition(":")[0]
    if not isinstance(executor, SlurmExecutor | RayExecutor):
        return asked if executor in ELSEWHERE and asked != "auto" else None
    if asked not in ("auto", executor.kind):
        raise StudyError(
            f"device is {device!r}, but the workers of the {type(executor).__name__} train on {executor.kind}; leave "
            "device out, and the executor decides"
        )
    return executor.kind


def build_executor(
    executor: str | Executor | Service,
    device: str = "cpu",
    num_devices: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Executor:
    """Return the executor of this name, or the one that is given, for trials on devices of this type.

    Raises:
        StudyError: It cannot run there.
    """
    if isinstance(executor, Service):
        raise StudyError(f"the service at {executor.shown} runs whole studies, and no placements")
    if not isinstance(executor, str):
        return executor
    if executor in ELSEWHERE:
        return _build_elsewhere(executor, device, num_devices, clock)
    num_there = count_devices(device)
    num_devices = num_devices or num_there
    if device != "cpu" and num_devices > num_there:
        raise StudyError(f"devices is {num_devices}, but torch sees {num_there} of type {device!r}")
    if executor == "inline":
        return InlineExecutor(Device(name=f"{device}:0", kind=device), clock)
    build = AutoExecutor if executor == "auto" else ProcessExecutor
    return build(num_devices, kind=device, clock=clock)


def _build_elsewhere(executor: str, device: str, num_devices: int | None, clock: Callable[[], float]) -> Executor:
    if executor == "ray":
        return RayExecutor(num_workers=num_devices, kind=device, clock=clock)
    return SlurmExecutor(max_workers=num_devices or 2, gres=None if device == "cpu" else "gpu:1")
