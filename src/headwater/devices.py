"""Every call to an accelerator. CUDA, ROCm, XPU, MPS and backends outside of torch are the same code here.

It rests on `torch.accelerator`. Functions about what this process has on its devices do not start a device that nobody
has used: a process that only conducts a study must not take memory on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from headwater.torch_private import default_mps_generator

_UNPINNED = ("mps",)
"""Kinds of accelerators whose copies need no pinned memory: they share that of the host."""
_SINGLE = ("mps",)
"""Kinds of accelerators without double precision."""


class Moment(Protocol):
    """A place in the stream of a device."""

    def query(self) -> bool:
        """Tell whether the device has come there."""


def find_accelerator() -> torch.device | None:
    """Return the kind of accelerator that torch can use here, without an index; None without one."""
    return torch.accelerator.current_accelerator(check_available=True)


def choose_default() -> torch.device:
    """Return the device that `"auto"` stands for: the accelerator, or the CPU without one."""
    return find_accelerator() or torch.device("cpu")


def is_accelerator(device: torch.device) -> bool:
    """Tell whether a device is the kind of accelerator that torch can use here."""
    accelerator = find_accelerator()
    return accelerator is not None and device.type == accelerator.type


def is_started() -> bool:
    """Tell whether this process has used an accelerator."""
    accelerator = find_accelerator()
    if accelerator is None:
        return False
    module: Any = torch.get_device_module(accelerator)
    return bool(getattr(module, "is_initialized", module.is_available)())


def count_devices() -> int:
    """Count the accelerators that torch sees."""
    return torch.accelerator.device_count()


def name_device(device: torch.device) -> str:
    """Return the model of a device, such as the name of a GPU; its kind where torch knows no name."""
    module: Any = torch.get_device_module(device)
    return str(module.get_device_name(device.index or 0)) if hasattr(module, "get_device_name") else device.type


def list_names() -> list[str]:
    """Return the accelerators of this machine, each with its model."""
    accelerator = find_accelerator()
    if accelerator is None:
        return []
    devices = [torch.device(accelerator.type, index) for index in range(count_devices())]
    return [f"{device} {name_device(device)}" for device in devices]


def synchronize() -> None:
    """Wait until the current accelerator has done what was asked of it; without one, do nothing."""
    if find_accelerator() is not None:
        torch.accelerator.synchronize()


def record_moment() -> Moment:
    """Note the place that the current stream of the accelerator has come to."""
    moment = torch.Event(find_accelerator())
    moment.record()
    return moment


def send(values: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device without waiting for it: from pinned memory, which the copy reads later."""
    if device.type == "cpu" or values.device.type != "cpu":
        return values.to(device)
    return (values if device.type in _UNPINNED else values.pin_memory()).to(device, non_blocking=True)


def widest_float(device: torch.device) -> torch.dtype:
    """Return the floating type of most digits that a device computes in."""
    return torch.float32 if device.type in _SINGLE else torch.float64


def allocated_bytes(device: torch.device | None = None) -> int:
    """Return how much memory this process has in use on an accelerator, the current one by default; 0 if none."""
    return int(torch.accelerator.memory_allocated(device)) if is_started() else 0


def peak_bytes(device: torch.device) -> int:
    """Return the most that was in use on a device since `reset_peak`."""
    return int(torch.accelerator.max_memory_allocated(device))


def peak_reserved_bytes(device: torch.device) -> int:
    """Return the most that torch has held on a device since `reset_peak`, with memory that it keeps for later."""
    return int(torch.accelerator.max_memory_reserved(device))


def reset_peak(device: torch.device) -> None:
    """Let the peaks of a device start from what is in use now."""
    torch.accelerator.reset_peak_memory_stats(device)


def memory_of(device: torch.device) -> tuple[int, int] | None:
    """Return how many bytes of a device are free, and how many it has; None where its driver does not tell."""
    try:
        free, total = torch.accelerator.get_memory_info(device)
    except NotImplementedError:
        return None
    return int(free), int(total)


def empty_cache() -> None:
    """Give memory that torch keeps for later back to the accelerator."""
    if is_started():
        torch.accelerator.empty_cache()


def list_generators() -> Sequence[torch.Generator]:
    """Return the default generators of the accelerators that this process uses."""
    if not is_started():
        return ()
    module: Any = torch.get_device_module(torch.accelerator.current_accelerator())
    if hasattr(module, "default_generators"):
        return tuple(module.default_generators)
    return (default_mps_generator(module),)


def default_generator(device: torch.device) -> torch.Generator:
    """Return the generator that calls on a device draw from where they name none."""
    if not is_accelerator(device):
        return torch.default_generator
    has_index = device != torch.device(device.type)
    return list_generators()[device.index if has_index else torch.accelerator.current_device_index()]


def read_generators() -> list[Tensor]:
    """Return the states of the default generators of all accelerators that this process uses."""
    return [generator.get_state() for generator in list_generators()]


def restore_generators(states: Sequence[Tensor]) -> None:
    """Set the default generators of the accelerators to states that `read_generators` returned."""
    for generator, state in zip(list_generators(), states, strict=False):  # a device may have been started since
        generator.set_state(state)


def seed_all(seed: int) -> None:
    """Seed torch on the CPU and on every accelerator."""
    if find_accelerator() is not None:
        torch.manual_seed(seed)
    else:  # the same, without the stack trace that torch puts aside for GPUs it has not seen yet
        torch.default_generator.manual_seed(seed)
