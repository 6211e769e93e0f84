"""How much of the devices each trial of a stage gets, so that the last of them ends early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from headwater.errors import PlanError


def share_statically(
    seconds: Sequence[float],
    *,
    num_devices: int,
    max_sharing: int,
    max_devices: int,
    priorities: Sequence[float] | None = None,
    hands_out_rest: bool = True,
) -> list[float]:
    """Share devices by the time that trials take on one device each; return the share of each, in the given order.

    Whole devices go out in proportion to time, rounded down; a trial that would get less than one gets
    `1 / max_sharing`, which says how many may share a device. What rounding leaves over goes where it saves most time,
    to all trials of one length or to none of them, so that equals stay equal; not so with `hands_out_rest=False`, which
    is the paper's own rule.

    Raises:
        PlanError: A number makes no sense.
    """
    weights = _weigh(seconds, priorities, num_devices, max_sharing, max_devices)
    total = sum(weights)
    ideal = [num_devices * weight / total if total else 0.0 for weight in weights]
    shares = [min(max(math.floor(share + 1e-9), 1 / max_sharing), max_devices) for share in ideal]
    if hands_out_rest:
        rest = num_devices - _count_taken(shares, ideal, max_sharing)
        _hand_out(shares, seconds, rest, max_devices)
    return shares


def _weigh(
    seconds: Sequence[float], priorities: Sequence[float] | None, num_devices: int, max_sharing: int, max_devices: int
) -> list[float]:
    weights = list(priorities) if priorities is not None else [1.0] * len(seconds)
    if len(weights) != len(seconds):
        raise PlanError(f"there are {len(seconds)} trials and {len(weights)} priorities; give one for each")
    if any(not 0 <= value < math.inf for value in (*seconds, *weights)):
        raise PlanError(f"times are {list(seconds)} and priorities {weights}; all are numbers of at least 0")
    for name, number in (("num_devices", num_devices), ("max_sharing", max_sharing), ("max_devices", max_devices)):
        if number < 1:
            raise PlanError(f"{name} is {number}; it must be at least 1")
    return [weight * time for weight, time in zip(weights, seconds, strict=True)]


def _count_taken(shares: Sequence[float], ideal: Sequence[float], max_sharing: int) -> int:
    """Return how many devices are spoken for: whole ones, and those that the small trials share."""
    whole = sum(int(share) for share in shares if share >= 1)
    small = [own for share, own in zip(shares, ideal, strict=True) if share < 1]
    return whole + max(math.ceil(sum(small) - 1e-9), math.ceil(len(small) / max_sharing))


def _hand_out(shares: list[float], seconds: Sequence[float], rest: int, max_devices: int) -> None:
    """Give what is left to the trials that it shortens most, those of one length together."""
    order = sorted(range(len(shares)), key=lambda trial: seconds[trial])
    classes = [list(group) for _, group in groupby(order, key=lambda trial: (seconds[trial], shares[trial]))]
    while rest > 0:
        open_classes = [group for group in classes if 1 <= shares[group[0]] < max_devices and len(group) <= rest]
        if not open_classes:
            return
        chosen = max(open_classes, key=lambda group: _gain(seconds[group[0]], shares[group[0]]))
        for trial in chosen:
            shares[trial] += 1
        rest -= len(chosen)


def _gain(seconds: float, share: float) -> float:
    return seconds / share - seconds / (share + 1)
