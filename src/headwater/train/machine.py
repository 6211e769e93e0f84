"""What this machine and this torch offer: devices, threads, memory, and whether lanes compute what models alone do."""

from __future__ import annotations

import platform
from pathlib import Path

import torch
from torch import nn

from headwater import devices
from headwater.errors import CannotFuseError
from headwater.torch_private import lanes_of, stack_of, vmap_level
from headwater.train.memory import available_bytes

NUM_LANES = 3


def check_lanes() -> None:
    """Train a tiny model as lanes and one by one for a step, by the same private calls that studies use.

    Raises:
        CannotFuseError: The numbers differ.
        Exception: Whatever a torch that has changed those calls raises.
    """
    torch.manual_seed(0)
    models = [nn.Linear(4, 2) for _ in range(NUM_LANES)]
    inputs = torch.randn(5, 4)
    weight, bias = (
        torch.stack([getattr(model, name).detach() for model in models]).requires_grad_() for name in ("weight", "bias")
    )
    with vmap_level(NUM_LANES):
        losses = stack_of(nn.functional.linear(inputs, lanes_of(weight), lanes_of(bias)).square().mean())
    torch.autograd.backward(losses.sum())
    for place, model in enumerate(models):
        torch.autograd.backward(model(inputs).square().mean())
        assert weight.grad is not None
        assert model.weight.grad is not None
        if not torch.allclose(weight.grad[place], model.weight.grad, rtol=1e-4, atol=1e-6):
            raise CannotFuseError(f"lane {place} of {NUM_LANES} has other gradients than the same model alone")


def list_devices() -> list[str]:
    """Name the devices that a study can train on, the one it takes by itself first."""
    return [*devices.list_names(), f"cpu {platform.machine()}"]


def describe_device(device: torch.device, num_threads: int) -> str:
    """Return what tells this device from others on which the same steps take unlike times."""
    if device.type != "cpu":
        name = devices.name_device(device) if devices.is_accelerator(device) else "of other machines"
        return f"{device.type} {name}"
    return f"{device.type} {_name_processor()}, {num_threads} threads"


def _name_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system than Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join([platform.machine(), *(names[:1] or [platform.processor()])]).strip()


def count_gpus() -> int:
    """Count the GPUs that torch sees."""
    return devices.count_devices()


def count_threads() -> int:
    """Count the threads that torch computes with."""
    return torch.get_num_threads()


def is_deterministic() -> bool:
    """Tell whether the user asks for runs that round alike, so that nothing may depend on time."""
    return torch.are_deterministic_algorithms_enabled()


def use_one_thread() -> None:
    """Let torch compute with one thread, for this process is one of several."""
    torch.set_num_threads(1)


def free_bytes() -> int | None:
    """Return how much memory is free; None where the system does not tell."""
    return available_bytes(torch.device("cpu"))
