"""What an elastic plan is made for: the stages of a search, how long epochs take, and what instances cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from itertools import pairwise
from random import Random
from statistics import NormalDist

from headwater.errors import PlanError
from headwater.plan.spot_history import SpotHistory

SECONDS_PER_HOUR = 3600.0
MOST_TRIALS, MOST_EPOCHS, MOST_WIDE = 100_000, 1_000_000_000, 4096
"""Trials and epochs of a stage, and devices of a trial: with more, no plan would be found in any time."""
MANY_EPOCHS = 30
"""The sum of more epochs than these is drawn as one normal number."""


class Billing(StrEnum):
    """What a provider charges for."""

    INSTANCE = "instance"
    """Every second that an instance is held, from its initialisation on."""
    FUNCTION = "function"
    """Every second that a device trains."""


class Part(IntEnum):
    """What a stage is for, where a study has a surrogate: one part after the other."""

    SEARCH = 0
    CHECK = 1
    """Some of the configurations train at twice the width, to see whether they rank alike."""
    TARGET = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStage:
    """Trials that train for so many epochs before the best of them go on.

    Raises:
        PlanError: A number is below one, or too large to plan for.
    """

    num_trials: int
    num_epochs: int
    bracket: int = 0
    """Which of the brackets it belongs to, that follow one another; each begins with trials of its own."""
    part: Part = Part.SEARCH
    scale: int = 1
    """Its models have 1/scale of the width."""

    def __post_init__(self) -> None:
        if self.num_trials < 1 or self.num_epochs < 1:
            raise PlanError(f"a stage of {self.num_trials} trials for {self.num_epochs} epochs; both are at least 1")
        if self.num_trials > MOST_TRIALS or self.num_epochs > MOST_EPOCHS:
            raise PlanError(
                f"a stage of {self.num_trials} trials for {self.num_epochs} epochs; at most {MOST_TRIALS:,} trials and "
                f"{MOST_EPOCHS:,} epochs can be planned"
            )


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something takes: the mean, and the standard deviation as a share of it; never less than nothing.

    Raises:
        PlanError: A number is below zero.
    """

    mean_s: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean_s", "spread"):
            if not 0 <= getattr(self, name) < math.inf:
                raise PlanError(f"{name} of a duration is {getattr(self, name)}; it must be at least 0")

    @property
    def variance(self) -> float:
        """The square of the standard deviation."""
        return (self.mean_s * self.spread) ** 2

    def draw(self, rng: Random) -> float:
        """Draw it once."""
        return max(0.0, rng.gauss(self.mean_s, self.spread * self.mean_s)) if self.spread else self.mean_s

    def expect_longest(self, num_rivals: int) -> float:
        """Return what the longest of so many is expected to take."""
        return self.mean_s * (1 + self.spread * expect_largest(num_rivals))


AT_ONCE = Duration()
"""What takes no time."""


def expect_largest(num_draws: int) -> float:
    """Return the expected largest of so many standard normal draws, by Blom's formula."""
    return NormalDist().inv_cdf((num_draws - 0.375) / (num_draws + 0.25)) if num_draws > 1 else 0.0


def cut_at_zero(spread: float) -> tuple[float, float]:
    """Return mean and variance of a normal draw around one that counts as zero where it is below.

    With a spread of 2, a third of the draws are cut, and the mean is 1.4 instead of 1.
    """
    if not spread:
        return 1.0, 0.0
    normal = NormalDist()
    share, density = normal.cdf(1 / spread), normal.pdf(1 / spread)
    mean = share + spread * density
    square = (1 + spread * spread) * share + spread * density
    return mean, square - mean * mean


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
    """The standard deviation of an epoch's time, as a share of it. An epoch takes no less than nothing: with a spread
    of 1 and more, that raises the mean."""
    _points: tuple[tuple[float, float], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if 1 not in self.by_devices:
            raise PlanError(f"seconds_per_epoch has times for {sorted(self.by_devices)} devices; it needs one for 1")
        for what, times in (("devices", self.by_devices), ("lanes", self.by_lanes)):
            for count, seconds in times.items():
                if count < 1 or not 0 < seconds < math.inf:
                    raise PlanError(f"an epoch takes {seconds} s with {count} {what}; both must be positive")
        if max(self.by_devices) > MOST_WIDE:
            raise PlanError(f"an epoch on {max(self.by_devices)} devices; at most {MOST_WIDE:,} can be planned")
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

    def slow_down(self, factor: float) -> EpochSeconds:
        """Return them as they are when every epoch takes so many times longer."""
        by_devices, by_lanes = (
            {count: factor * seconds for count, seconds in given.items()} for given in (self.by_devices, self.by_lanes)
        )
        return EpochSeconds(by_devices=by_devices, by_lanes=by_lanes, spread=self.spread)

    @property
    def most_useful(self) -> int:
        """The number of devices beyond which no measured number is faster."""
        best = min(self.by_devices.values())
        return min(count for count, seconds in self.by_devices.items() if seconds == best)

    def draw(self, mean: float, num_epochs: int, rng: Random) -> float:
        """Draw how long so many epochs of this mean time take; no epoch takes less than nothing."""
        if not self.spread:
            return mean * num_epochs
        if num_epochs > MANY_EPOCHS:
            factor, variance = cut_at_zero(self.spread)
            return max(0.0, rng.gauss(factor * mean * num_epochs, mean * math.sqrt(variance * num_epochs)))
        return sum(max(0.0, rng.gauss(mean, self.spread * mean)) for _ in range(num_epochs))


_NOT_NEGATIVE = (
    "dollars_per_hour",
    "provision_s",
    "initialise_s",
    "minimum_s",
    "launch_dollars",
    "provision_spread",
    "initialise_spread",
    "interruptions_per_hour",
    "on_demand_dollars_per_hour",
)


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
    provision_spread: float = 0.0
    """The standard deviation of `provision_s`, as a share of it."""
    initialise_spread: float = 0.0
    is_spot: bool = False
    """Whether it is had at the spot price, and may be taken back at any moment."""
    interruptions_per_hour: float = 0.0
    """How often that happens to one of them."""
    on_demand_dollars_per_hour: float | None = None
    """Of a spot instance: what the same costs on demand; None where nobody says, and none is to take its place."""
    kind: str | None = None
    """What its devices are."""
    spot_history: SpotHistory | None = field(default=None, repr=False, compare=False)
    """Of a spot instance: what could be had of them, by which a run decides when to wait and when to pay."""

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise PlanError(f"{self.name} has {self.num_devices} devices; it must have at least 1")
        for name in _NOT_NEGATIVE:
            if not 0 <= (getattr(self, name) or 0.0) < math.inf:
                raise PlanError(f"{name} of {self.name} is {getattr(self, name)}; it must be at least 0")

    @property
    def dollars_per_second(self) -> float:
        """What holding one costs."""
        return self.dollars_per_hour / SECONDS_PER_HOUR

    @property
    def provisioning(self) -> Duration:
        """How long it takes until one is there."""
        return Duration(self.provision_s, self.provision_spread)

    @property
    def initialisation(self) -> Duration:
        """How long one prepares itself."""
        return Duration(self.initialise_s, self.initialise_spread)

    def expect_wait(self, num_new: int) -> tuple[float, float]:
        """Return how long it takes until so many are there, and until the last of them is ready after that."""
        return self.provision_s, self.initialisation.expect_longest(num_new)

    def find_on_demand(self) -> Instance | None:
        """Return what takes the place of a spot instance where none is to be had; None where nobody says its price."""
        if not self.is_spot or self.on_demand_dollars_per_hour is None:
            return None
        return replace(
            self,
            is_spot=False,
            dollars_per_hour=self.on_demand_dollars_per_hour,
            on_demand_dollars_per_hour=None,
            interruptions_per_hour=0.0,
            spot_history=None,
        )

    def price(self, *, is_spot: bool) -> float:
        """Return what a second costs on one that is held at the spot price, or on demand."""
        own = self if is_spot else self.find_on_demand() or self
        return own.dollars_per_second

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
    start_up: Duration = AT_ONCE
    """How long a trial, or a group of lanes, takes until it trains, in every stage."""
    checkpoint: Duration = AT_ONCE
    """How long it takes to save one where a stage ends and to load it where the next begins, together."""
    by_scale: Mapping[int, EpochSeconds] = field(default_factory=dict)
    """How long epochs take of narrower models, by how many times narrower they are."""
    times: dict[tuple[int, int, int, int], tuple[float, float]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """What stages were found to take, by trials, epochs, scale and devices: worked out once."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise PlanError("there is no stage to plan; give at least one, for instance 32x1 for 32 trials and 1 epoch")
        if self.max_instances is not None and self.max_instances < 1:
            raise PlanError(f"max_instances is {self.max_instances}; it must be at least 1")
        if missing := sorted({stage.scale for stage in self.stages} - {1} - self.by_scale.keys(), reverse=True):
            raise PlanError(
                f"nothing says how long epochs take at 1/{missing[0]} of the width; give `widths: {{{missing[0]}: "
                "{seconds_per_epoch: {1: seconds}}}` in the profile, or plan with --measure"
            )

    def find_times(self, stage: JobStage) -> EpochSeconds:
        """Return how long epochs of a stage take."""
        return self.epoch_seconds if stage.scale == 1 else self.by_scale[stage.scale]

    @property
    def switch_s(self) -> float:
        """How long it takes until what trained on an instance goes on on another, from where it was saved."""
        ready_s = self.instance.provision_s + self.instance.initialise_s
        return ready_s + self.start_up.mean_s + self.checkpoint.mean_s

    @property
    def most_devices(self) -> int:
        """How many devices are of use at once, in any stage."""
        return max(stage.num_trials * self.find_times(stage).most_useful for stage in self.stages)

    def devices_per_trial(self, stage: JobStage, num_devices: int) -> int:
        """Return how many devices each trial trains on, if the stage has so many in all."""
        return max(1, min(num_devices // stage.num_trials, self.find_times(stage).most_useful))

    def chain_length(self, stage: JobStage, num_devices: int) -> int:
        """Return how many trials train one after the other on the busiest devices."""
        return -(-stage.num_trials // min(num_devices, stage.num_trials))

    def list_chains(self, stage: JobStage, num_devices: int) -> list[tuple[int, int]]:
        """Return how many trials train on how many devices each, in turn or as lanes, where devices are few."""
        short, num_longer = divmod(stage.num_trials, num_devices)
        chains = [(short + 1, num_longer), (short, num_devices - num_longer)]
        return [chain for chain in chains if chain[1]]

    def list_allocations(self, stage: JobStage) -> list[int]:
        """Return the numbers of devices worth giving to a stage: any other is as slow as a smaller one of these."""
        most = stage.num_trials * self.find_times(stage).most_useful
        if self.max_instances is not None:
            most = min(most, self.max_instances * self.instance.num_devices)
        lengths = {-(-stage.num_trials // count) for count in range(1, stage.num_trials + 1)}
        few = {-(-stage.num_trials // length) for length in lengths}
        many = range(stage.num_trials, most + 1, stage.num_trials)
        return sorted(count for count in {*few, *many} if count <= most)
