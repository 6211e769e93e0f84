"""Devices of unlike kinds: how fast each is for whom, and who is to have which.

What trains on one kind four times as fast as on another may gain much less from it than its neighbour does. So fast
devices go to those who lose most without them, by measured times, and not to who comes first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from headwater.plan.surface import Kind, Shape, Surface

MOST_COMPARED = 64
"""So many kinds of trials, the latest, tell how unlike two kinds of devices are."""


@dataclass(slots=True)
class DeviceSurfaces:
    """How long epochs take on each kind of device, as they were trained, and so how unlike these are."""

    surfaces: dict[str, Surface] = field(default_factory=dict)
    """By kind of device."""

    def add_epoch(self, device: str, kind: Kind, shape: Shape, seconds: float, steps: Mapping[int, float]) -> None:
        """Take in an epoch that was trained on a kind of device; steps tell what other numbers of lanes would take."""
        surface = self.surfaces.setdefault(device, Surface())
        surface.add_epoch(kind, shape, seconds)
        if steps and kind not in surface.steps:
            surface.steps[kind] = steps

    def time_epoch(self, device: str, kind: Kind, num_lanes: int) -> float:
        """Return how long an epoch of a group takes there, read off another kind of device if need be; inf: unknown."""
        known = {name: surface.time_epoch(kind, num_lanes) for name, surface in self.surfaces.items()}
        if known.get(device, math.inf) < math.inf:
            return known[device]
        guesses = [value * self.compare(name, device) for name, value in known.items() if value < math.inf]
        return math.inf if not guesses else math.exp(sum(map(math.log, guesses)) / len(guesses))

    def compare(self, device: str, other: str) -> float:
        """Return how many times as long epochs take on another kind of device: the mean over what had both.

        Where nothing had both, they are taken to be alike.
        """
        mine, theirs = self.surfaces.get(device), self.surfaces.get(other)
        if device == other or mine is None or theirs is None:
            return 1.0
        ratios = [
            math.log(seconds / mine.epochs[kind][shape])
            for kind, known in islice(reversed(theirs.epochs.items()), MOST_COMPARED)
            for shape, seconds in known.items()
            if shape in mine.epochs.get(kind, {})
        ]
        return math.exp(math.fsum(ratios) / len(ratios)) if ratios else 1.0

    def order(self, devices: Collection[str]) -> list[str]:
        """Return kinds of devices, the fastest first; of equals in the order given."""
        first = next(iter(devices), "")
        return sorted(dict.fromkeys(devices), key=lambda name: self.compare(first, name))


def match_devices(times: Sequence[Mapping[str, float]], kinds: Sequence[str], *, is_last: bool = False) -> list[int]:
    """Return for each group the place of its device, by how long it trains on each kind: no two have the same.

    The sum of all times is small: who loses most by a slower device chooses first. Where they are the last, their end
    counts: who trains longest chooses first. Where nobody can tell, devices go out in their order.
    """
    free: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        free.setdefault(kind, []).append(place)
    if len(free) < 2 or not all(math.isfinite(seconds) for known in times for seconds in known.values()):
        return list(range(len(times)))
    chosen: dict[int, int] = {}
    waiting = dict(enumerate(times))
    while waiting:
        open_kinds = [kind for kind, places in free.items() if places]

        def regret(group: int, open_kinds: Sequence[str] = open_kinds) -> float:
            seconds = sorted(times[group][kind] for kind in open_kinds)
            return seconds[0] if is_last or len(seconds) < 2 else seconds[1] - seconds[0]

        group = max(waiting, key=lambda one: (regret(one), -one))
        kind = min(open_kinds, key=lambda one: waiting[group][one])
        chosen[group] = free[kind].pop(0)
        del waiting[group]
    return [chosen[group] for group in range(len(times))]
