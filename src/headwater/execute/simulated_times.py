"""How long everything takes where nothing trains: given, or measured in an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from headwater.plan import choose_num_lanes, count_wanted, is_worth_trying
from headwater.plan.speeds import Speeds
from headwater.space import Config
from headwater.trials import (
    AUTO_SCALES,
    Finding,
    Lane,
    LoadingCost,
    Measurement,
    Profile,
    Purpose,
    TrainingTime,
    UnitCost,
)

EpochTime: TypeAlias = Callable[[Config, int, str], float]
"""The seconds of an epoch of a group: by the configuration, the number of its lanes and the kind of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTimes:
    """How long a training function takes, and all that comes with it."""

    epoch_s: EpochTime
    num_epochs: int = 20
    """After how many epochs the function comes to its end."""
    num_steps: int = 100
    """How many steps an epoch has."""
    load_s: float = 0.0
    """How much of an epoch goes into loading data, which the groups of a pack do once."""
    start_s: float = 0.0
    """From when a placement is given to a device until it trains."""
    save_s: float = 0.0
    """To save the state of one trial."""
    switch_s: float = 0.0
    """To give the turn to another group of a pack."""
    measure_s: float = 0.0
    """To measure a group of one size."""
    profile_s: float | None = None
    """To find out how many lanes pay, in all; None: what each size takes that is tried."""
    lane_bytes: int | None = None
    """How much memory each lane takes; None where nobody asks."""
    devices: Speeds = field(default_factory=Speeds)
    """How fast one trial trains on several devices."""
    speedups: Mapping[int, float] = field(default_factory=dict)
    """By scale: how many times as fast surrogates of 1/scale of the width train."""

    def time_epoch(self, lanes: Sequence[Lane], kind: str, scale: int | None = None, num_devices: int = 1) -> float:
        """Return how long an epoch of a group takes: as long as that of its slowest lane."""
        seconds = max(self.epoch_s(lane.config, len(lanes), kind) for lane in lanes)
        return seconds * self.devices.factor(num_devices) / self.speedups.get(scale or 1, 1.0)

    def measure(
        self, purpose: Purpose, lanes: Sequence[Lane], kind: str, scale: int | None = None
    ) -> tuple[Finding, float]:
        """Return what a measurement of these lanes finds, and how long it takes."""
        if purpose is Purpose.START:
            return None, self.measure_s
        if purpose is Purpose.SCALES:
            return tuple(sorted(self.speedups, reverse=True)) or AUTO_SCALES, self.measure_s
        epoch_s = self.time_epoch(lanes, kind, scale)
        if purpose is Purpose.FORESEE:
            step_s, num_steps = epoch_s / self.num_steps, self.num_epochs * self.num_steps
            found = TrainingTime(seconds_per_step=step_s, num_epochs=self.num_epochs, num_steps=num_steps)
            return found, self.measure_s
        if purpose is Purpose.LOADING:
            unit = UnitCost(compute_s=(epoch_s - self.load_s) / self.num_steps, load_s=self.load_s / self.num_steps)
            return LoadingCost(unit=unit, switch_s=self.switch_s), self.measure_s
        if purpose is Purpose.ALONE:
            return self._measure_size(lanes[:1], kind, scale), self.measure_s
        measured: list[Measurement] = []
        for size in (1 << power for power in range(count_wanted(len(lanes)).bit_length())):
            if is_worth_trying(size, measured):
                measured.append(self._measure_size(lanes[:size], kind, scale))
        num_lanes, reason = choose_num_lanes(measured, shares_loading=self.load_s > 0)
        profile = Profile(num_lanes=num_lanes, reason=reason, measurements=tuple(measured))
        return profile, len(measured) * self.measure_s if self.profile_s is None else self.profile_s

    def _measure_size(self, lanes: Sequence[Lane], kind: str, scale: int | None) -> Measurement:
        step_s = self.time_epoch(lanes, kind, scale) / self.num_steps
        return Measurement(
            num_lanes=len(lanes),
            seconds_per_lane_step=step_s / len(lanes),
            peak_bytes=None if self.lane_bytes is None else len(lanes) * self.lane_bytes,
            loading_s=self.load_s / self.num_steps,
        )


def read_epoch_times(profiles: Mapping[str, Profile], num_steps: int) -> EpochTime:
    """Return epoch times as profiles have measured them, one for each kind of device; an epoch has so many steps.

    Between two sizes that were measured, a step takes what lies between; beyond the largest, in proportion to lanes.
    """
    tables = {
        kind: sorted((item.num_lanes, item.num_lanes * item.seconds_per_lane_step) for item in profile.measurements)
        for kind, profile in profiles.items()
    }

    def find(config: Config, num_lanes: int, kind: str) -> float:
        table = tables[kind]
        for (low, low_s), (high, high_s) in pairwise(table):
            if low <= num_lanes <= high:
                return num_steps * (low_s + (high_s - low_s) * (num_lanes - low) / (high - low))
        size, seconds = table[0] if num_lanes < table[0][0] else table[-1]
        return num_steps * seconds * max(num_lanes / size, 1.0)

    return find
