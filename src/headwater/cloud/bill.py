"""What nodes have cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.plan.jobs import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """How long a node was held."""

    node: str
    begin_s: float
    end_s: float | None = None
    """None while it is held."""
    is_spot: bool = False
    is_lost: bool = False
    """Whether nobody gave it back: it was taken, or died."""


def add_up(stays: Iterable[Stay], instance: Instance, now_s: float) -> float:
    """Return what must be paid for stays if all end now: each by the second, but for the minimum at least.

    Where the instance is a spot instance, nodes that are none are charged at its price on demand.
    """
    total = 0.0
    for stay in stays:
        end_s = now_s if stay.end_s is None else stay.end_s
        held_s = max(end_s - stay.begin_s, instance.minimum_s)
        total += held_s * instance.price(is_spot=stay.is_spot) + instance.launch_dollars
    return total
