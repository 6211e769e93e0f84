"""How many devices this machine has."""

from __future__ import annotations

import os


def count_devices(kind: str) -> int:
    """Count the cores, or the GPUs."""
    return count_cores() if kind == "cpu" else count_gpus()


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_gpus() -> int:
    """Count the GPUs that torch sees."""
    from headwater.train.machine import count_gpus as count

    return count()
