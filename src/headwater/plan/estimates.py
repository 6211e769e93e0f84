"""How fast devices are that nothing was measured on: estimates by what their makers say they do at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.plan.catalogue import read_table

USE = 0.4
"""What share of the most that a device can do a training function is taken to get from it."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What a device can do at most."""

    flops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Work:
    """What an epoch of one trial computes and moves."""

    flops: float
    bytes_moved: float = 0.0

    def count_seconds(self, ability: Ability) -> float:
        """Return how long a device takes that does nothing else: it computes or moves, whatever takes longer."""
        return max(self.flops / ability.flops_per_second, self.bytes_moved / ability.bytes_per_second)


def load_abilities() -> dict[str, Ability]:
    """Return what is known of devices, by their kinds."""
    rows = read_table("device_kinds.csv")
    return {
        row["kind"]: Ability(1e12 * float(row["teraflops"]), 1e9 * float(row["gigabytes_per_second"])) for row in rows
    }


def recognise_kind(device: str, abilities: Mapping[str, Ability]) -> str | None:
    """Return the kind that a name such as `cuda Tesla V100-SXM2-16GB` speaks of; None where it is unknown."""
    words = device.lower()
    if words.startswith("cpu"):
        return "cpu"
    found = [kind for kind in abilities if kind.lower().partition("-")[0] in words and kind != "cpu"]
    whole = [kind for kind in found if all(part in words for part in kind.lower().split("-"))]
    return max(whole, key=len, default=None)


def compare_kinds(measured: Ability, other: Ability, work: Work | None) -> float:
    """Return how many times faster another device is estimated to be.

    Where the work is known, by what takes longer on each. Else by whichever of computing and moving gains less.
    """
    if work is not None:
        return work.count_seconds(measured) / work.count_seconds(other)
    computing = other.flops_per_second / measured.flops_per_second
    return min(computing, other.bytes_per_second / measured.bytes_per_second)


def estimate_epoch(work: Work, ability: Ability) -> float:
    """Return how long an epoch is estimated to take where only the model is known."""
    return work.count_seconds(ability) / USE
