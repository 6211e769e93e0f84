"""How many devices this machine has."""

from __future__ import annotations

import os

_VISIBLE = {"xpu": "ZE_AFFINITY_MASK"}
"""Variables that limit a process to some devices, where the name does not follow from the kind of device."""


def count_devices(kind: str) -> int:
    """Count the cores, or the GPUs."""
    return count_cores() if kind == "cpu" else count_gpus()


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_to(kind: str, place: str) -> dict[str, str]:
    """Return the environment of a process that is to see one accelerator of a kind only."""
    return {_VISIBLE.get(kind, f"{kind.upper()}_VISIBLE_DEVICES"): place}


def count_gpus() -> int:
    """Count the GPUs that torch sees."""
    from headwater.train.machine import count_gpus as count

    return count()
