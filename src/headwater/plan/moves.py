"""Which groups that train should have other devices: one test for every move, what it gains against what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headwater.plan.allocation import Policy
from headwater.plan.speeds import Speeds
from headwater.plan.surface import Kind, Shape, Surface, cut_evenly
from headwater.plan.waterfill import share_statically

LEAST_GAIN = 1.1
"""Where a device scales worse than this, a trial does not get it: the prediction may be off by as much."""


SAFE_DEVICES = 2
"""How many devices trials start on where nobody knows what several gain: two take no longer than one at worst."""
LEAST_EPOCHS = 4
"""A trial gets more than those for the first time only where more epochs than these are left: two may be slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTime:
    """A group that trains, and how long it will."""

    key: int
    kind: Kind
    shape: Shape
    epochs_left: float
    epoch_s: float
    """What an epoch takes now."""
    can_widen: bool = True
    """Whether several devices may train one trial of it."""

    @property
    def seconds_left(self) -> float:
        """How long it trains if nothing changes."""
        return self.epochs_left * self.epoch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A group is to be cut into parts, one for each device; or its one trial is to have so many devices."""

    key: int
    num_parts: int = 1
    num_devices: int = 1
    seconds_left: float = 0.0
    """How long it trains yet, the change itself counted."""
    gain_s: float = 0.0
    """How much earlier it ends in prediction."""

    @property
    def num_taken(self) -> int:
        """How many devices it has then."""
        return max(self.num_parts, self.num_devices)


def choose_moves(
    groups: Sequence[GroupTime], num_idle: int, surface: Surface, policy: Policy = Policy.OURS
) -> list[Move]:
    """Return which groups get devices that are idle while nothing waits for them: those that gain most, first.

    A trial that trains faster on fewer devices than it has gives the others back.
    A move must gain more than it costs. `fluid` is the paper's rule: all devices are shared anew in proportion to time.
    """
    if policy is Policy.FLUID:
        return _move_by_paper(groups, num_idle, surface)
    if policy is not Policy.OURS:
        return []
    moves: list[Move] = []
    left = {group.key: group for group in groups}
    while left:
        found = [move for group in left.values() for move in _list_moves(group, num_idle, surface)]
        best = max(found, key=lambda move: (move.gain_s, -move.num_taken), default=None)
        if best is None:
            return moves
        moves.append(best)
        num_idle -= best.num_taken - left.pop(best.key).shape.num_devices
    return moves


def choose_narrowed(groups: Sequence[GroupTime], num_waiting: int, surface: Surface) -> list[Move]:
    """Return which trials give back all devices but one, now that so many groups wait: those that gain least by them.

    Two trials on a device each get more done than one on two, unless the wide one is about to end.
    """
    wide = sorted((one for one in groups if one.shape.num_devices > 1), key=lambda one: one.seconds_left)
    moves: list[Move] = []
    for group in wide:
        alone_s = group.seconds_left * surface.compare(group.kind, group.shape, Shape(group.shape.num_lanes))
        if num_waiting > 0 and group.seconds_left > surface.change_s:
            moves.append(Move(key=group.key, seconds_left=alone_s + surface.change_s))
            num_waiting -= group.shape.num_devices - 1
    return moves


def share_new(seconds: Sequence[float], num_devices: int, speeds: Speeds, policy: Policy = Policy.OURS) -> list[int]:
    """Return how many devices trials get that start now, by the time that each takes on one; at least one each."""
    return _SHARES[policy](seconds, num_devices, speeds)


def _list_moves(group: GroupTime, num_idle: int, surface: Surface) -> Iterator[Move]:
    """Yield what the group would gain by."""
    num_lanes, present = group.shape.num_lanes, group.shape.num_devices
    if present == 1:
        for num_parts in range(2, min(num_idle + 1, num_lanes) + 1):
            size = cut_evenly(num_lanes, num_parts)[0]
            yield from _test(group, Shape(size), surface, Move(key=group.key, num_parts=num_parts))
    if num_lanes == 1 and group.can_widen:
        speeds = surface.speeds(group.kind, present + num_idle)
        most = _most_worthwhile(speeds)
        if not surface.shares and group.epochs_left <= LEAST_EPOCHS:
            most = min(most, SAFE_DEVICES)
        worthwhile = range(present + 1, most + 1)
        for num_devices in (*range(1, present), *worthwhile):  # what has turned out to be slower is given back
            yield from _test(group, Shape(1, num_devices), surface, Move(key=group.key, num_devices=num_devices))


def _test(group: GroupTime, shape: Shape, surface: Surface, move: Move) -> Iterator[Move]:
    seconds = group.seconds_left * surface.compare(group.kind, group.shape, shape) + surface.change_s
    if seconds < group.seconds_left:
        gain_s = group.seconds_left - seconds
        yield Move(
            key=move.key,
            num_parts=move.num_parts,
            num_devices=move.num_devices,
            seconds_left=seconds,
            gain_s=gain_s,
        )


def _move_by_paper(groups: Sequence[GroupTime], num_idle: int, surface: Surface) -> list[Move]:
    num_devices = num_idle + sum(group.shape.num_devices for group in groups)
    seconds = [
        group.seconds_left * surface.compare(group.kind, group.shape, Shape(group.shape.num_lanes)) for group in groups
    ]
    if not groups or not all(map(math.isfinite, seconds)):
        return []
    shares = share_statically(seconds, num_devices=num_devices, max_sharing=1, max_devices=num_devices)
    wanted = {group.key: int(share) for group, share in zip(groups, shares, strict=True)}
    found = [move for group in groups for move in _list_moves(group, num_idle, surface)]
    moves: list[Move] = []
    for move in sorted(found, key=lambda one: -one.seconds_left):
        if move.num_taken == wanted.get(move.key) and move.num_taken - 1 <= num_idle:
            moves.append(move)
            num_idle -= move.num_taken - 1
            del wanted[move.key]
    return moves


def _most_worthwhile(speeds: Speeds) -> int:
    """Return how many devices a trial gets at most: as many as each make it clearly faster."""
    count = 1
    while count < speeds.max_devices and speeds.factor(count) > LEAST_GAIN * speeds.factor(count + 1):
        count += 1
    return count


def _share_by_gain(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> list[int]:
    """Give each further device to the trial that it saves most time; equals before it in order come first."""
    widths = [1] * len(seconds)
    most = _most_worthwhile(speeds)
    for _ in range(num_devices - len(seconds)):
        gains = [
            time * (speeds.factor(width) - speeds.factor(width + 1)) if width < most else 0.0
            for time, width in zip(seconds, widths, strict=True)
        ]
        best = max(range(len(gains)), key=lambda place: gains[place], default=None)
        if best is None or gains[best] <= 0:
            break
        widths[best] += 1
    return widths


def _share_by_paper(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> list[int]:
    most = speeds.most_devices
    shares = share_statically(seconds, num_devices=max(num_devices, 1), max_sharing=1, max_devices=most)
    widths = [max(int(share), 1) for share in shares]
    while sum(widths) > max(num_devices, len(widths)):  # shares of less than a device have become one
        widths[widths.index(max(widths))] -= 1
    return widths


def _share_evenly(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> list[int]:
    width = num_devices // max(len(seconds), 1)
    return [max(1, min(width, speeds.max_devices))] * len(seconds)


def _share_one(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> list[int]:
    return [1] * len(seconds)


_SHARES: dict[Policy, Callable[[Sequence[float], int, Speeds], list[int]]] = {
    Policy.OURS: _share_by_gain,
    Policy.FLUID: _share_by_paper,
    Policy.STATIC: _share_by_paper,
    Policy.EVEN: _share_evenly,
    Policy.FIFO: _share_one,
}
