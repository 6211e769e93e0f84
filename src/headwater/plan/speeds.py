"""How fast a trial trains on a share of a device, or on several, and how that is read off a few measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import PlanError

LEAST_BENEFIT = 0.1
"""One more trial on a device must save this share of the time, or it is one too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """The time of a trial by its share of the devices, as a multiple of its time on one of its own.

    Raises:
        PlanError: A number makes no sense.
    """

    sharing: float = 1.0
    """How many times slower all trials on a device get with each further one on it."""
    scaling: float = 1.0
    """What each further device of a trial costs: w devices take `scaling ** (w - 1) / w` of the time of one."""
    max_sharing: int = 1
    """How many trials may share a device."""
    max_devices: int = 1
    """How many devices a trial may have."""
    is_sliced: bool = False
    """Whether trials on one device only take turns: then p of them take p times as long, whatever `sharing` says."""

    def __post_init__(self) -> None:
        if not (1 <= self.sharing < math.inf and 1 <= self.scaling < math.inf):
            raise PlanError(f"sharing is {self.sharing} and scaling {self.scaling}; both are factors of at least 1")
        if self.max_sharing < 1 or self.max_devices < 1:
            raise PlanError(
                f"max_sharing is {self.max_sharing} and max_devices {self.max_devices}; both are at least 1"
            )

    def factor(self, share: float) -> float:
        """Return the time on a share, as a multiple of the time on one device: 1/p of a device, or whole ones."""
        if share >= 1:
            count = min(int(share), self.max_devices)
            return self.scaling ** (count - 1) / count
        num_trials = round(1 / share)
        return float(num_trials) if self.is_sliced else self.sharing ** (num_trials - 1)

    @property
    def best_sharing(self) -> int:
        """How many trials on a device get most done."""
        return max(range(1, self.max_sharing + 1), key=lambda count: (count / self.factor(1 / count), -count))

    @property
    def most_devices(self) -> int:
        """How many devices make a trial fastest."""
        return min(range(1, self.max_devices + 1), key=lambda count: (self.factor(count), count))


def measure_benefits(seconds: Sequence[float]) -> list[float]:
    """Return what each further trial on a device saves, from the time of a trial beside 0, 1, 2, … others.

    The time that p trials take together, against p - 1 of them and one more after them, as a share.
    """
    return [1 - (count - 1) / count * seconds[count - 1] / seconds[count - 2] for count in range(2, len(seconds) + 1)]


def choose_max_sharing(benefits: Sequence[float], least: float = LEAST_BENEFIT) -> int:
    """Return how many trials may share a device: as many as each save more than `least`."""
    return next((count for count, benefit in enumerate(benefits, start=1) if benefit <= least), len(benefits) + 1)


def fit_sharing(seconds: Sequence[float]) -> float:
    """Return how many times slower each further trial makes a device, from times beside 0, 1, 2, … others."""
    return _fit_rate([(count, math.log(value / seconds[0])) for count, value in enumerate(seconds)])


def fit_scaling(seconds: Mapping[int, float]) -> float:
    """Return what each further device costs, from times by the number of devices; 1 must be among them."""
    return _fit_rate([(count - 1, math.log(count * value / seconds[1])) for count, value in seconds.items()])


def choose_max_devices(speeds_by_devices: Mapping[int, float]) -> int:
    """Return how many devices a trial may have: the last measured number that is faster than all before it."""
    best, chosen = math.inf, 1
    for count in sorted(speeds_by_devices):
        if speeds_by_devices[count] < best:
            best, chosen = speeds_by_devices[count], count
    return chosen


def count_fitting_lanes(one_bytes: float, two_bytes: float, capacity_bytes: float) -> int:
    """Return how many lanes fit, from the memory that one and two take; 0 where not even one does."""
    if one_bytes > capacity_bytes:
        return 0
    if two_bytes <= one_bytes:
        raise PlanError(f"two lanes take {two_bytes} bytes and one takes {one_bytes}; measure them again")
    return 1 + int((capacity_bytes - one_bytes) / (two_bytes - one_bytes))


def _fit_rate(points: Sequence[tuple[int, float]]) -> float:
    """Fit a factor per step by least squares through the origin of logarithms; measured gains count as none."""
    weight = sum(steps * steps for steps, _ in points)
    slope = sum(steps * value for steps, value in points) / weight if weight else 0.0
    return math.exp(max(slope, 0.0))
