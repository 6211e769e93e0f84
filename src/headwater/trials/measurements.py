"""What a few real steps have shown, as frozen values."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a few real steps of a group of this many lanes cost."""

    num_lanes: int
    seconds_per_lane_step: float
    peak_bytes: int | None = None
    """How much memory the group took at its peak; None where the system does not tell."""
    loading_s: float = 0.0
    """How much of a step of the whole group went into loading data, which groups of a pack do once for all."""

    @property
    def computing_s(self) -> float:
        """What a lane-step costs beside loading."""
        return self.seconds_per_lane_step - self.loading_s / self.num_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """What was measured of one unit of a pack, for each example of the stream."""

    compute_s: float
    """Computing, which every unit does for itself."""
    load_s: float
    """Loading, which a pack pays once."""
    memory_bytes: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingCost:
    """What groups would share as a pack, by a few steps of one."""

    unit: UnitCost | None
    """None where the group reads nothing that could be shared."""
    switch_s: float = 0.0
    """What it takes to give the turn to another group."""
    room_bytes: float = math.inf
    """How much memory a pack may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTime:
    """How long a trial trains alone, by a few of its steps."""

    seconds_per_step: float
    num_epochs: int
    """How many epochs it trains; 0 where the function does not say."""
    num_steps: int | None
    """How many steps it takes, by its data loader; None where that does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How many lanes a group should have, and the measurements behind it."""

    num_lanes: int
    reason: str
    measurements: tuple[Measurement, ...] = ()
    label: str = "all trials"
    """Which trials it is for: those that agree on this."""
    is_cut: bool = False
    """Whether measuring was cut short, so that it holds for this run alone."""

    @property
    def largest(self) -> int:
        """The largest size that was measured."""
        return max((item.num_lanes for item in self.measurements), default=0)

    @property
    def seconds_alone(self) -> float | None:
        """What a step costs in a group of one."""
        alone = [item.seconds_per_lane_step for item in self.measurements if item.num_lanes == 1]
        return alone[0] if alone else None
