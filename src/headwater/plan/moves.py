"""Which groups that train should have other devices: one test for every move, what it gains against what it costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TypeAlias

from headwater.plan.allocation import Policy
from headwater.plan.speeds import Speeds
from headwater.plan.surface import Kind, Shape, Surface, cut_evenly
from headwater.plan.waterfill import share_statically

LEAST_GAIN = 1.1
"""Where a device scales worse than this in a guess, a trial does not get it."""
LEAST_KNOWN_GAIN = 1.008
"""And so where trials have shown it: an idle device that gains little is of no use to anybody else."""

SAFE_DEVICES = 2
"""How many devices trials start on where nobody knows what several gain: two take no longer than one at worst."""
LEAST_EPOCHS = 4
"""A trial gets more than those for the first time only where more epochs than these are left: two may be slow."""


Family: TypeAlias = tuple[Kind, Shape, bool, bool]


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
    family: Family = field(init=False, repr=False)
    """What decides by what it could gain, whatever is left of it."""
    seconds_left: float = field(init=False, repr=False)
    """How long it trains if nothing changes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", (self.kind, self.shape, self.can_widen, self.epochs_left <= LEAST_EPOCHS))
        object.__setattr__(self, "seconds_left", self.epochs_left * self.epoch_s)

    def age(self, seconds: float) -> GroupTime:
        """Return what is left of it so long after its report: it is within the next epoch, for it would report."""
        if seconds <= 0:
            return self
        passed = min(seconds / self.epoch_s, 1.0)
        return GroupTime(
            key=self.key,
            kind=self.kind,
            shape=self.shape,
            epochs_left=max(self.epochs_left - passed, 0.0),
            epoch_s=self.epoch_s,
            can_widen=self.can_widen,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A group is to be cut into parts, one for each device; or its one trial is to have so many devices, or another."""

    key: int
    num_parts: int = 1
    num_devices: int = 1
    seconds_left: float = 0.0
    """How long it trains yet, the change itself counted."""
    gain_s: float = 0.0
    """How much earlier it ends in prediction."""
    is_elsewhere: bool = False
    """Whether it goes as it is to a faster device."""

    @property
    def num_taken(self) -> int:
        """How many devices it has then."""
        return max(self.num_parts, self.num_devices)


def choose_moves(
    groups: Sequence[GroupTime], num_idle: int, surface: Surface, policy: Policy = Policy.OURS
) -> list[Move]:
    """Return which groups get devices that are idle while nothing waits for them: those that would end last.

    A trial that trains faster on fewer devices than it has gives the others back.
    A move must gain more than it costs. `fluid` is the paper's rule: all devices are shared anew in proportion to time.
    """
    if policy is Policy.FLUID:
        return _move_by_paper(groups, num_idle, surface)
    return [*_move_by_end(groups, num_idle, _Options(groups, num_idle, surface))] if policy is Policy.OURS else []


def find_move(
    mine: GroupTime, groups: Sequence[GroupTime], num_idle: int, surface: Surface, policy: Policy = Policy.OURS
) -> Move | None:
    """Return what `choose_moves` has for one of the groups, without asking for more of the others than that takes."""
    if policy is not Policy.OURS:
        return next((move for move in choose_moves(groups, num_idle, surface, policy) if move.key == mine.key), None)
    options = _Options(groups, num_idle, surface)
    best = options.find_best(mine, options.reach)
    if best is None or options.count_wanted(groups, num_idle) <= num_idle:  # nobody has to do with less
        return best
    return next((move for move in _move_by_end(groups, num_idle, options) if move.key == mine.key), None)


def choose_narrowed(groups: Sequence[GroupTime], num_waiting: int, surface: Surface) -> list[Move]:
    """Return which trials give back devices, now that so many groups wait: those that gain least by them, first.

    Two trials on a device each get more done than one on two, unless the wide one is about to end.
    """
    wide = sorted((one for one in groups if one.shape.num_devices > 1), key=lambda one: one.seconds_left)
    moves: list[Move] = []
    for group in wide:
        num_lanes, present = group.shape
        kept = max(present - num_waiting, 1)
        if num_waiting > 0 and group.seconds_left > surface.change_s:
            seconds = group.seconds_left * surface.compare(group.kind, group.shape, Shape(num_lanes, kept))
            moves.append(Move(key=group.key, num_devices=kept, seconds_left=seconds + surface.change_s))
            num_waiting -= present - kept
    return moves


def gain_by_merging(first: GroupTime, second: GroupTime, surface: Surface) -> float:
    """Return how many seconds of a device are saved where two groups of a kind train as one; the change is counted.

    Something must wait for the device that one of them had: the trials themselves do not end earlier by it.
    """
    fused = Shape(first.shape.num_lanes + second.shape.num_lanes)
    if first.kind != second.kind or first.shape.num_devices > 1 or second.shape.num_devices > 1:
        return -math.inf
    seconds = max(one.seconds_left * surface.compare(one.kind, one.shape, fused) for one in (first, second))
    return first.seconds_left + second.seconds_left - seconds - 2 * surface.change_s


def share_new(seconds: Sequence[float], num_devices: int, speeds: Speeds, policy: Policy = Policy.OURS) -> list[int]:
    """Return how many devices trials get that start now, by the time that each takes on one; at least one each."""
    return _SHARES[policy](seconds, num_devices, speeds)


FAMILY = attrgetter("family")


class _Options:
    """What groups could have instead of what they have, the fastest first.

    It depends on the family of a group, not on how much is left of it, so it is found once for many.
    """

    def __init__(self, groups: Sequence[GroupTime], num_idle: int, surface: Surface) -> None:
        self.reach = num_idle + sum(group.shape.num_devices - 1 for group in groups)
        """How many more devices a group could have at most, if all others gave back what they can."""
        self._surface = surface
        self._found: dict[Family, list[_Option]] = {}
        self._best: dict[tuple[Family, int], _Option | None] = {}
        self._larger: dict[tuple[Family, int], _Option | None] = {}

    def count_wanted(self, groups: Sequence[GroupTime], num_idle: int) -> int:
        """Return how many idle devices it takes at most for each group to have what is best for it."""
        members = Counter(map(FAMILY, groups))
        best = {family: self._find_option(family, self.reach) for family in members}
        return sum(
            max(option.num_taken - family[1].num_devices, 0) * members[family]
            for family, option in best.items()
            if option is not None
        )

    def find_best(self, group: GroupTime, num_idle: int) -> Move | None:
        """Return what the group would gain most by with so many idle devices; None where nothing gains."""
        option = self._find_option(group.family, num_idle)
        return None if option is None else self.test(group, option)

    def can_gain(self, group: GroupTime, num_idle: int) -> bool:
        """Tell whether the group would gain by anything with so many idle devices."""
        option = self._find_option(group.family, num_idle)
        return option is not None and self._pays(group, option)

    def share_idle(self, groups: Sequence[GroupTime], num_idle: int) -> list[_Option | None]:
        """Give idle devices to whoever ends last, again and again, as long as they make it faster.

        None stands for what would not gain more than it costs, and for who gets nothing.
        """
        chosen: list[_Option | None] = [None] * len(groups)
        agenda = [(-group.seconds_left, place) for place, group in enumerate(groups)]
        heapify(agenda)
        while agenda and num_idle > 0:
            place = heappop(agenda)[1]
            group, before = groups[place], chosen[place]
            num_taken = group.shape.num_devices if before is None else before.num_taken
            option = self._find_larger(group.family, num_taken)
            if option is not None and option.num_taken - num_taken <= num_idle:
                num_idle -= option.num_taken - num_taken
                chosen[place] = option
                heappush(agenda, (-group.seconds_left * option.ratio, place))
        pairs = zip(groups, chosen, strict=True)
        return [option if option is not None and self._pays(group, option) else None for group, option in pairs]

    def list_moves(self, group: GroupTime, num_idle: int) -> list[Move]:
        """Return all that the group would gain by, the most first."""
        present = group.shape.num_devices
        fitting = [option for option in self._list(group.family) if option.num_taken - present <= num_idle]
        return [move for option in fitting if (move := self.test(group, option)) is not None]

    def test(self, group: GroupTime, option: _Option) -> Move | None:
        """Return the option as a move, where it gains more than it costs."""
        if not self._pays(group, option):
            return None
        seconds = group.seconds_left * option.ratio + self._surface.change_s
        return Move(
            key=group.key,
            num_parts=option.num_parts,
            num_devices=option.num_devices,
            seconds_left=seconds,
            gain_s=group.seconds_left - seconds,
        )

    def _pays(self, group: GroupTime, option: _Option) -> bool:
        return group.seconds_left * option.ratio + self._surface.change_s < group.seconds_left

    def _find_option(self, family: Family, num_idle: int) -> _Option | None:
        key = family, num_idle
        if key not in self._best:
            fitting = (one for one in self._list(family) if one.num_taken - family[1].num_devices <= num_idle)
            self._best[key] = next(fitting, None)
        return self._best[key]

    def _find_larger(self, family: Family, num_taken: int) -> _Option | None:
        """Return what takes the next larger number of devices that makes it faster."""
        key = family, num_taken
        if key not in self._larger:
            options = self._list(family)
            ratio = next((one.ratio for one in options if one.num_taken == num_taken), 1.0)
            faster = (one for one in options if one.num_taken > num_taken and one.ratio < ratio)
            self._larger[key] = min(faster, key=lambda one: (one.num_taken, one.ratio), default=None)
        return self._larger[key]

    def _list(self, family: Family) -> list[_Option]:
        if family not in self._found:
            self._found[family] = sorted(_list_options(family, self.reach, self._surface), key=lambda one: one.order)
        return self._found[family]


@dataclass(frozen=True, slots=True)
class _Option:
    """Another shape, and how long an epoch takes in it, as a multiple of what it takes now."""

    ratio: float
    num_parts: int = 1
    num_devices: int = 1
    num_taken: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_taken", max(self.num_parts, self.num_devices))

    @property
    def order(self) -> tuple[float, int]:
        return self.ratio, self.num_taken


def _list_options(family: Family, num_more: int, surface: Surface) -> Iterator[_Option]:
    """Yield what a group could have with so many more devices."""
    kind, shape, can_widen, is_short = family
    num_lanes, present = shape
    if present == 1:
        for num_parts in range(2, min(num_more + 1, num_lanes) + 1):
            size = cut_evenly(num_lanes, num_parts)[0]
            yield _Option(surface.compare(kind, shape, Shape(size)), num_parts=num_parts)
    if num_lanes == 1 and can_widen:
        speeds = surface.speeds(kind, present + num_more)
        most = most_worthwhile(speeds, LEAST_KNOWN_GAIN if surface.shares else LEAST_GAIN)
        if not surface.shares and is_short:
            most = min(most, SAFE_DEVICES)
        worthwhile = range(present + 1, most + 1)
        for num_devices in (*range(1, present), *worthwhile):  # what has turned out to be slower is given back
            ratio = surface.compare(kind, shape, Shape(1, num_devices))
            yield _Option(ratio, num_devices=num_devices)


def _move_by_end(groups: Sequence[GroupTime], num_idle: int, options: _Options) -> Iterator[Move]:
    """Yield what lets the last group end first; before that, who is faster on fewer devices gives the others back."""
    wide = [group for group in groups if group.shape.num_devices > 1]
    backs = [
        (group, move)
        for group in wide
        if (move := options.find_best(group, num_idle)) and move.num_taken < group.shape.num_devices
    ]
    yield from (move for _, move in backs)
    num_idle += sum(group.shape.num_devices - move.num_taken for group, move in backs)
    done = {group.key for group, _ in backs}
    left = [group for group in groups if group.key not in done and options.can_gain(group, num_idle)]
    while left:
        chosen = options.share_idle(left, num_idle)
        pairs = [(group, option) for group, option in zip(left, chosen, strict=True) if option is not None]
        if len(pairs) == len(left):
            yield from (move for group, option in pairs if (move := options.test(group, option)) is not None)
            return
        left = [group for group, _ in pairs]  # others can have more then


def _move_by_paper(groups: Sequence[GroupTime], num_idle: int, surface: Surface) -> list[Move]:
    num_devices = num_idle + sum(group.shape.num_devices for group in groups)
    seconds = [
        group.seconds_left * surface.compare(group.kind, group.shape, Shape(group.shape.num_lanes)) for group in groups
    ]
    if not groups or not all(map(math.isfinite, seconds)):
        return []
    shares = share_statically(seconds, num_devices=num_devices, max_sharing=1, max_devices=num_devices)
    wanted = {group.key: int(share) for group, share in zip(groups, shares, strict=True)}
    options = _Options(groups, num_idle, surface)
    found = [move for group in groups for move in options.list_moves(group, num_idle)]
    moves: list[Move] = []
    for move in sorted(found, key=lambda one: -one.seconds_left):
        if move.num_taken == wanted.get(move.key) and move.num_taken - 1 <= num_idle:
            moves.append(move)
            num_idle -= move.num_taken - 1
            del wanted[move.key]
    return moves


def most_worthwhile(speeds: Speeds, least_gain: float = LEAST_KNOWN_GAIN) -> int:
    """Return how many devices a trial gets at most: as many as each make it faster by so much."""
    count = 1
    while count < speeds.max_devices and speeds.factor(count) > least_gain * speeds.factor(count + 1):
        count += 1
    return count


def _share_by_end(seconds: Sequence[float], num_devices: int, speeds: Speeds) -> list[int]:
    """Give each further device to the trial that ends last, as long as it gains; equals before it in order come first.

    Those that start together are mostly waited for together.
    """
    widths = [1] * len(seconds)
    most = most_worthwhile(speeds)
    agenda = [(-time, place) for place, time in enumerate(seconds)] if most > 1 else []
    heapify(agenda)
    for _ in range(num_devices - len(seconds)):
        if not agenda:
            break
        place = heappop(agenda)[1]
        widths[place] += 1
        if widths[place] < most:
            heappush(agenda, (-seconds[place] * speeds.factor(widths[place]), place))
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
    Policy.OURS: _share_by_end,
    Policy.FLUID: _share_by_paper,
    Policy.STATIC: _share_by_paper,
    Policy.EVEN: _share_evenly,
    Policy.FIFO: _share_one,
}
