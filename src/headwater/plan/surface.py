"""How long an epoch takes by what trains it: so many lanes, on so many devices. Measured in places, fitted between.

The sizes of groups that are tried before a study, and every epoch that is trained in it, are points of one surface.
What a group would take with fewer lanes, or a trial with more devices, is read off it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from headwater.plan.speeds import Speeds, fit_scaling
from headwater.trials import KindTimes, Learnt

PRIOR_SCALING = 1.15
"""What each further device costs where none was tried yet: two are taken to be 1.7 times as fast as one."""
PRIOR_DEVICES = 4
"""How many devices a trial gets at most where no more than two were tried."""
PRIOR_CHANGE_S = 1.0
"""What a change costs where none was made yet."""
SMOOTHING = 0.5
"""How much of a point a newer measurement replaces."""
MOST_SCALING = 2.0
"""Then a second device gains nothing, and it makes no difference how much worse it is."""
NOTABLE = 0.1
"""A share that has changed by so much of itself is news."""
MOST_KINDS = 64
"""Of how many kinds a study hands on what it has seen: where each trial is a kind of its own, none comes again."""

Kind: TypeAlias = tuple[Hashable, ...]


class Shape(NamedTuple):
    """What trains a group: so many lanes on so many devices."""

    num_lanes: int
    num_devices: int = 1


@dataclass(slots=True, kw_only=True)
class Surface:
    """Seconds of an epoch by kind of trial and shape, on one kind of device."""

    steps: dict[Kind, Mapping[int, float]] = field(default_factory=dict)
    """By kind and number of lanes: the seconds of one step, measured before the study."""
    epochs: dict[Kind, dict[Shape, float]] = field(default_factory=dict)
    """By kind and shape: the seconds of an epoch, as they were trained."""
    shares: dict[Kind, dict[int, float]] = field(default_factory=dict)
    """By kind and number of devices: what share of its time on one device a trial takes, as trials that had both saw.
    It holds whatever the trials of a kind differ in."""
    change_s: float = PRIOR_CHANGE_S
    """How long lanes stand still when what they have is changed."""
    num_changes: int = 0
    num_epochs: int | None = None
    """How many epochs the function trains, once it has said so."""
    has_news: bool = False
    """Whether it has learnt more of several devices than was handed on last."""

    def recall(self, learnt: Learnt) -> None:
        """Take in what an earlier run has handed on."""
        for item in learnt.times:
            self.epochs[item.kind] = {Shape(lanes, devices): seconds for lanes, devices, seconds in item.epochs}
            if item.shares:
                self.shares[item.kind] = dict(item.shares)
        if learnt.change_s is not None:
            self.change_s, self.num_changes = learnt.change_s, 1

    def hand_on(self, learnt: Learnt) -> Learnt:
        """Return what is known with the times added: of kinds as these recipes tell them, with shares before others."""
        kinds = [kind for kind in self.epochs if len(kind) == len(learnt.recipes)]
        kinds = sorted(kinds, key=lambda kind: kind in self.shares)[-MOST_KINDS:]
        return replace(
            learnt,
            times=tuple(
                KindTimes(
                    kind=kind,
                    epochs=tuple((shape.num_lanes, shape.num_devices, s) for shape, s in self.epochs[kind].items()),
                    shares=tuple(self.shares.get(kind, {}).items()),
                )
                for kind in kinds
            ),
            change_s=self.change_s if self.num_changes else None,
        )

    def add_epoch(self, kind: Kind, shape: Shape, seconds: float) -> None:
        """Take in one more epoch that was trained."""
        known = self.epochs.setdefault(kind, {})
        known[shape] = _smooth(known.get(shape), seconds)

    def add_share(self, kind: Kind, num_devices: int, share: float) -> None:
        """Take in what share of its time on one device a trial took on several."""
        known = self.shares.setdefault(kind, {})
        before = known.get(num_devices, math.inf)
        known[num_devices] = share = _smooth(known.get(num_devices), share)
        self.has_news |= abs(share - before) > NOTABLE * share

    def add_lone(self, kind: Kind, num_devices: int, seconds: float, earlier: Mapping[int, float]) -> None:
        """Take in an epoch of a trial alone, that took so long on other numbers of devices.

        Where it never had one device only, another number of them tells, of which that is known; else two of
        them tell what each further one costs.
        """
        others = {count: value for count, value in earlier.items() if count != num_devices}
        known = self.shares.get(kind, {})
        told = next((count for count in others if count in known), None)
        if num_devices == 1:
            for count, value in others.items():
                self.add_share(kind, count, value / seconds)
        elif 1 in others:
            self.add_share(kind, num_devices, seconds / others[1])
        elif told is not None:
            self.add_share(kind, num_devices, known[told] * seconds / others[told])
        elif others:
            count = min(others)
            ratio = seconds / others[count] * num_devices / count
            scaling = max(ratio, 1e-9) ** (1 / (num_devices - count))
            for number in (count, num_devices):
                self.add_share(kind, number, min(max(scaling, 1.0), MOST_SCALING) ** (number - 1) / number)

    def add_change(self, seconds: float) -> None:
        """Take in what one more change has cost; the first replaces what was guessed."""
        self.change_s = _smooth(self.change_s if self.num_changes else None, seconds)
        self.has_news |= not self.num_changes
        self.num_changes += 1

    def time_epoch(self, kind: Kind, num_lanes: int) -> float:
        """Return how long an epoch of so many lanes takes on one device, as far as their kind was trained; or inf."""
        trained = self._by_lanes(kind)
        size = min(trained, key=lambda count: abs(count - num_lanes), default=None)
        return math.inf if size is None else trained[size] * self._compare_lanes(kind, size, num_lanes)

    def compare(self, kind: Kind, present: Shape, other: Shape) -> float:
        """Return how long an epoch takes in another shape, as a multiple of what it takes now; inf: nobody knows."""
        by_lanes = self._compare_lanes(kind, present.num_lanes, other.num_lanes)
        if present.num_devices == other.num_devices:
            return by_lanes
        table = {1: 1.0, **self.shares.get(kind, {})}
        speeds = self.speeds(kind, max(present.num_devices, other.num_devices))
        shares = [table.get(count) or speeds.factor(count) for count in (present.num_devices, other.num_devices)]
        return by_lanes * shares[1] / shares[0]

    def speeds(self, kind: Kind, max_devices: int) -> Speeds:
        """Return how a trial of a kind takes to several devices, as far as any trial has shown it.

        It is not read further than to twice as many devices as were tried.
        """
        tables: list[Mapping[int, float]] = [self.shares[kind]] if kind in self.shares else [*self.shares.values()]
        fits = [fit_scaling({1: 1.0, **found}) for found in tables]
        scaling = min(sum(fits) / len(fits), MOST_SCALING) if fits else PRIOR_SCALING
        num_tried = max((count for found in tables for count in found), default=1)
        return Speeds(scaling=scaling, max_devices=max(1, min(max_devices, max(2 * num_tried, PRIOR_DEVICES))))

    def _compare_lanes(self, kind: Kind, present: int, other: int) -> float:
        if present == other:
            return 1.0
        for table in (self._by_lanes(kind), self.steps.get(kind, {})):
            known = read_between(table, other), read_between(table, present)
            if all(value is not None for value in known):
                return float(known[0] or 0.0) / float(known[1] or math.inf)
        return math.inf

    def _by_lanes(self, kind: Kind) -> Mapping[int, float]:
        """Return what an epoch has taken on one device, by the number of lanes."""
        return {shape.num_lanes: value for shape, value in self.epochs.get(kind, {}).items() if shape.num_devices == 1}


def read_between(table: Mapping[int, float], size: int) -> float | None:
    """Return the seconds at a size, on a line between the measured sizes around it; None outside of them."""
    if size in table:
        return table[size]
    for low, high in pairwise(sorted(table)):
        if low < size < high:
            return table[low] + (table[high] - table[low]) * (size - low) / (high - low)
    return None


def cut_evenly(num_lanes: int, num_parts: int) -> Sequence[int]:
    """Return the sizes of parts that differ by one lane at most."""
    return [num_lanes // num_parts + (part < num_lanes % num_parts) for part in range(num_parts)]


def _smooth(before: float | None, seconds: float) -> float:
    return seconds if before is None else before + SMOOTHING * (seconds - before)
