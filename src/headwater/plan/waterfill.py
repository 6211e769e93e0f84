"""How much of the devices each trial of a stage gets, so that the last of them ends early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from headwater.errors import PlanError
from headwater.plan.speeds import Speeds

LEVEL_STEPS = 60
"""Halvings of the interval in which the water level lies: to the last digit of a float."""


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


def find_level(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> float:
    """Return the time before which no schedule can end all trials, however often it moves them.

    Water-filling: at this level the shares that bring each trial to its end in time fill the devices exactly. Speed
    grows with the share along a concave curve, so no trial gains from having more now and less later.
    """
    longest = max(seconds, default=0.0)
    if not longest:
        return 0.0
    curve = _trace_curve(speeds)
    low, high = longest / curve[-1][1], sum(seconds)
    if _need(seconds, low, curve) <= num_devices:
        return low
    for _ in range(LEVEL_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _need(seconds, middle, curve) <= num_devices else (middle, high)
    return high


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


def _trace_curve(speeds: Speeds) -> list[tuple[float, float]]:
    """Return corners of the least concave curve over what a share can do: pairs of share and speed, rising."""
    points = [(1 / count, 1 / speeds.factor(1 / count)) for count in range(speeds.max_sharing, 1, -1)]
    points += [(float(count), 1 / speeds.factor(count)) for count in range(1, speeds.most_devices + 1)]
    hull = [(0.0, 0.0)]
    for point in points:
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return [corner for place, corner in enumerate(hull) if place == 0 or corner[1] > hull[place - 1][1]]


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    before = (middle[1] - first[1]) * (last[0] - middle[0])
    after = (last[1] - middle[1]) * (middle[0] - first[0])
    return after >= before


def _need(seconds: Sequence[float], level: float, curve: Sequence[tuple[float, float]]) -> float:
    """Return the share of all trials together that brings each to its end at this level."""
    return sum(_share_for(time / level, curve) for time in seconds)


def _share_for(speed: float, curve: Sequence[tuple[float, float]]) -> float:
    for (left, slow), (right, fast) in pairwise(curve):
        if speed <= fast:
            return left + (right - left) * (speed - slow) / (fast - slow)
    return math.inf if speed > curve[-1][1] * (1 + 1e-12) else curve[-1][0]
