"""Devices of unlike kinds: how fast each is for whom, and who is to have which.

What trains on one kind four times as fast as on another may gain much less from it than its neighbour does. So fast
devices go to those who lose most without them, by measured times, and not to who comes first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from headwater.plan.kind_shares import Contender, Goal, KindShares, share_kinds
from headwater.plan.surface import Kind, Shape, Surface

__all__ = [
    "Bundle",
    "Contender",
    "DeviceSurfaces",
    "Goal",
    "KindShares",
    "choose_slower",
    "find_released",
    "match_devices",
    "measure_utilisation",
    "note_idle",
    "share_kinds",
]

LEAST_UTILISATION = 0.5
"""What keeps less of a fast device busy than this has a slower one, where others wait."""
MOST_COMPARED = 64
"""So many kinds of trials, the latest, tell how unlike two kinds of devices are."""
RELEASE_S = 60.0
"""A bundle whose devices were idle for so long is given back."""


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

    def rate(self, device: str, kind: Kind, num_lanes: int) -> float:
        """Return how many lanes go through an epoch there in a second; 0 where nobody knows."""
        return num_lanes / self.time_epoch(device, kind, num_lanes)

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


def choose_slower(
    present: str, idle: Collection[str], rates: Mapping[str, float], utilisation: float, *, others_wait: bool
) -> str | None:
    """Return the kind of idle device that something goes to which does not use the one it has; None: it stays.

    Hydro's rule, for a target and for surrogates: where others wait, and it keeps less than half of its device busy, it
    has a slower one, the fastest of them.
    """
    if not others_wait or utilisation >= LEAST_UTILISATION:
        return None
    slower = [kind for kind in dict.fromkeys(idle) if 0 < rates.get(kind, 0.0) < rates.get(present, 0.0)]
    return max(slower, key=lambda kind: rates[kind], default=None)


def measure_utilisation(surface: Surface, kind: Kind, num_lanes: int) -> float:
    """Return what share of a device a group uses: what it gets done, of the most that any number of lanes did.

    Numbers of lanes are those of which steps were measured; 1 where nobody knows.
    """
    rates = {size: size / seconds for size, seconds in surface.steps.get(kind, {}).items()}
    sizes = [size for size in rates if size >= num_lanes]
    return rates[min(sizes)] / max(rates.values()) if sizes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Devices that come and go together, with what belongs to them: a node, or a GPU with its cores."""

    name: str
    devices: tuple[str, ...]
    belongings: tuple[str, ...] = ()


def note_idle(since_s: Mapping[str, float], idle: Collection[str], now_s: float) -> dict[str, float]:
    """Return since when each device is idle, by what was known before and which are idle now."""
    return {name: since_s.get(name, now_s) for name in sorted(idle)}


def find_released(
    bundles: Sequence[Bundle], since_s: Mapping[str, float], now_s: float, after_s: float = RELEASE_S
) -> list[Bundle]:
    """Return the bundles to give back: all their devices were idle for so long."""
    return [
        bundle
        for bundle in bundles
        if bundle.devices and all(now_s - since_s.get(name, now_s) >= after_s for name in bundle.devices)
    ]
