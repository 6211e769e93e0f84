"""What an elastic plan is made for: the stages of a search, how long epochs take, and what instances cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from random import Random
from statistics import NormalDist

from headwater.errors import PlanError

SECONDS_PER_HOUR = 3600.0


class Billing(StrEnum):
    """What a provider charges for."""

    INSTANCE = "instance"
    """Every second that an instance is held, from its initialisation on."""
    FUNCTION = "function"
    """Every second that a device trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStage:
    """Trials that train for so many epochs before the best of them go on.

    Raises:
        PlanError: A number is below one.
    """

    num_trials: int
    num_epochs: int

    def __post_init__(self) -> None:
        if self.num_trials < 1 or self.num_epochs < 1:
            raise PlanError(f"a stage of {self.num_trials} trials for {self.num_epochs} epochs; both are at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSeconds:
    """How long a trial takes for an epoch, by the number of its devices; straight lines on log scales between.

    More devices than the most that were measured count as that many: nothing is known of their use.

    Raises:
        PlanError: There is no time for one device, or a time is not positive.
    """

    by_devices: Mapping[int, float]
    by_lanes: Mapping[int, float] = field(default_factory=dict)
    """How long an epoch of so many trials takes that train as one, the lanes of a group on one device."""
    spread: float = 0.0
    """The standard deviation of an epoch's time, as a share of it."""
    _points: tuple[tuple[float, float], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if 1 not in self.by_devices:
            raise PlanError(f"seconds_per_epoch has times for {sorted(self.by_devices)} devices; it needs one for 1")
        for what, times in (("devices", self.by_devices), ("lanes", self.by_lanes)):
            for count, seconds in times.items():
                if count < 1 or not 0 < seconds < math.inf:
                    raise PlanError(f"an epoch takes {seconds} s with {count} {what}; both must be positive")
        if not 0 <= self.spread < math.inf:
            raise PlanError(f"the spread of an epoch's time is {self.spread}; it must be a share of at least 0")
        points = tuple((math.log(count), math.log(self.by_devices[count])) for count in sorted(self.by_devices))
        object.__setattr__(self, "_points", points)

    def at(self, num_devices: int) -> float:
        """Return the mean time of an epoch on so many devices."""
        if num_devices in self.by_devices:
            return self.by_devices[num_devices]
        place = math.log(num_devices)
        for (left, low), (right, high) in pairwise(self._points):
            if place <= right:
                return math.exp(low + (high - low) * (place - left) / (right - left))
        return self.by_devices[max(self.by_devices)]

    def of_chain(self, num_trials: int) -> tuple[float, int]:
        """Return the least time of an epoch of all these trials on one device, and in how many rounds they train.

        They train one after the other, or as lanes of groups, whatever is faster.
        """
        ways = [(num_trials * self.at(1), num_trials)]
        for num_lanes, seconds in self.by_lanes.items():
            num_rounds = -(-num_trials // num_lanes)
            ways.append((num_rounds * seconds, num_rounds))
        return min(ways)

    @property
    def most_useful(self) -> int:
        """The number of devices beyond which no measured number is faster."""
        best = min(self.by_devices.values())
        return min(count for count, seconds in self.by_devices.items() if seconds == best)

    def straggle(self, num_epochs: int, num_rivals: int) -> float:
        """Return how many times longer the slowest of so many trials is expected to take than the mean one.

        The sum of many epochs is nearly normal, and Blom's formula is near the expected largest of normal draws.
        """
        if not self.spread or num_rivals == 1:
            return 1.0
        largest = NormalDist().inv_cdf((num_rivals - 0.375) / (num_rivals + 0.25))
        return 1 + self.spread / math.sqrt(num_epochs) * largest

    def draw(self, mean: float, num_epochs: int, rng: Random) -> float:
        """Draw how long so many epochs of this mean time take; no epoch takes less than nothing."""
        if not self.spread:
            return mean * num_epochs
        return sum(max(0.0, rng.gauss(mean, self.spread * mean)) for _ in range(num_epochs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine that can be had for money.

    Raises:
        PlanError: A number makes no sense.
    """

    name: str = "instance"
    num_devices: int
    dollars_per_hour: float
    provision_s: float = 0.0
    """How long it takes until one that was asked for is there; not charged."""
    initialise_s: float = 0.0
    """How long it prepares itself; charged."""
    minimum_s: float = 60.0
    """For so long each one is charged at least."""
    launch_dollars: float = 0.0
    """What each launch costs beside the time, such as loading the data set."""

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise PlanError(f"{self.name} has {self.num_devices} devices; it must have at least 1")
        for name in ("dollars_per_hour", "provision_s", "initialise_s", "minimum_s", "launch_dollars"):
            if not 0 <= getattr(self, name) < math.inf:
                raise PlanError(f"{name} of {self.name} is {getattr(self, name)}; it must be at least 0")

    @property
    def dollars_per_second(self) -> float:
        """What holding one costs."""
        return self.dollars_per_hour / SECONDS_PER_HOUR

    def count_for(self, num_devices: int) -> int:
        """Return how many instances have so many devices."""
        return -(-num_devices // self.num_devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a plan depends on."""

    stages: Sequence[JobStage]
    epoch_seconds: EpochSeconds
    instance: Instance
    billing: Billing = Billing.INSTANCE
    max_instances: int | None = None
    """How many instances can be had at once; None: as many as are of use."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise PlanError("there is no stage to plan; give at least one, for instance 32x1 for 32 trials and 1 epoch")
        if self.max_instances is not None and self.max_instances < 1:
            raise PlanError(f"max_instances is {self.max_instances}; it must be at least 1")

    def devices_per_trial(self, stage: JobStage, num_devices: int) -> int:
        """Return how many devices each trial trains on, if the stage has so many in all."""
        return max(1, min(num_devices // stage.num_trials, self.epoch_seconds.most_useful))

    def chain_length(self, stage: JobStage, num_devices: int) -> int:
        """Return how many trials train one after the other on the busiest devices."""
        return -(-stage.num_trials // min(num_devices, stage.num_trials))

    def list_chains(self, stage: JobStage, num_devices: int) -> list[int]:
        """Return how many trials train on each device, one after the other or as lanes, where devices are few."""
        short, num_longer = divmod(stage.num_trials, num_devices)
        return [short + 1] * num_longer + [short] * (num_devices - num_longer)

    def list_allocations(self, stage: JobStage) -> list[int]:
        """Return the numbers of devices worth giving to a stage: any other is as slow as a smaller one of these."""
        most = stage.num_trials * self.epoch_seconds.most_useful
        if self.max_instances is not None:
            most = min(most, self.max_instances * self.instance.num_devices)
        lengths = {-(-stage.num_trials // count) for count in range(1, stage.num_trials + 1)}
        few = {-(-stage.num_trials // length) for length in lengths}
        many = range(stage.num_trials, most + 1, stage.num_trials)
        return sorted(count for count in {*few, *many} if count <= most)
