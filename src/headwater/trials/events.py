"""What happens while placements run, as it is told to who decides. Executors stamp each with its device and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.trials.learnt import ChosenWay
from headwater.trials.measurements import LoadingCost, Measurement, Profile, TrainingTime
from headwater.trials.placements import Purpose
from headwater.trials.records import Ending, Report
from headwater.trials.spending import Spending
from headwater.trials.surrogate import StartCheck

Finding: TypeAlias = Profile | Measurement | LoadingCost | TrainingTime | StartCheck | tuple[int, ...] | None
"""What was measured; None where it could not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a placement."""

    key: int
    """The placement's."""
    device: str = ""
    time_s: float = 0.0
    """By the clock of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent(Event):
    """Something that happened to a group; it is known by the number of the first trial that it started with."""

    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting(Event):
    """Whoever is to run a placement is not ready yet, or is only now; an order in which all leave calls it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(GroupEvent):
    """A group is about to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped(GroupEvent):
    """A group took steps; told now and then, for whoever watches."""

    num_lane_steps: int
    """So many since it was told last, counted once per lane."""
    num_epochs: int = 0
    """How many epochs its function has said that it trains; 0 while it has not."""
    done: tuple[int, ...] = ()
    """Trials for which its function has come to its end, while others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(GroupEvent):
    """The lanes of a group reported an epoch, and wait for an order."""

    reports: tuple[Report, ...]
    num_steps: int
    """How many steps the group has taken since it started."""
    seconds: float
    """How long it trained since its last report."""
    num_lane_steps: int = 0
    """As for `Stepped`: since it was told last."""
    is_over: bool = False
    """Whether they are told once more, since the function has come to its end; the order says whose weights to keep."""
    num_epochs: int = 0
    """How many epochs its function has said that it trains; 0 while it has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(GroupEvent):
    """An order was carried out as far as states go; the answer may say who joins the pack."""

    epochs: Mapping[int, int]
    """The trials whose states are in their place now, and of which epochs."""
    obstacles: Mapping[int, str] = field(default_factory=dict)
    """Why trials that were to be saved have no state: they cannot be continued from one."""
    kept: Mapping[int, int] = field(default_factory=dict)
    """The trials whose weights are kept as the best from now on, and of which epochs: one of each study at most."""
    seconds: float = 0.0
    """How long saving took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(GroupEvent):
    """A group has ended; `numbers` are the trials that were still in it."""

    ending: Ending
    numbers: tuple[int, ...]
    seconds: float
    """How long it trained since its last report."""
    ways: tuple[ChosenWay, ...] = ()
    """Which ways of computing were chosen meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen(Event):
    """A placement that measures has seen by its first steps about how long it will take from now on."""

    purpose: Purpose
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Event):
    """A placement that measures is done."""

    finding: Finding
    ending: Ending | None = None
    """How a group ended that could not be measured to the end."""
    numbers: tuple[int, ...] = ()
    """The trials of that group."""
    ways: tuple[ChosenWay, ...] = ()
    """Which ways of computing were chosen meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """Whatever ran the placement is gone."""

    reason: str
    is_out_of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Event):
    """Something worth a line happened where it runs."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent(Event):
    """Where a run on nodes that are paid for stands; it belongs to no placement, and its key to none."""

    key: int = -1
    spending: Spending
