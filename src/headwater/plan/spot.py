"""When to train on spot instances, when to pay for one on demand, when to wait: rules that never miss a deadline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from headwater.errors import PlanError


class Market(StrEnum):
    """Where an instance comes from."""

    SPOT = "spot"
    """Cheap, and taken back at any moment."""
    ON_DEMAND = "on-demand"
    WAIT = "wait"
    """Nowhere: nothing is held and nothing is paid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTask:
    """What is to be trained by when.

    Raises:
        PlanError: It cannot be done in time even on demand.
    """

    work_s: float
    """How long it trains on an instance."""
    deadline_s: float
    switch_s: float
    """How long an instance that was asked for is paid for before it trains."""

    def __post_init__(self) -> None:
        if self.work_s + self.switch_s > self.deadline_s:
            raise PlanError(
                f"{self.work_s:.0f} s of training and {self.switch_s:.0f} s to start do not fit into "
                f"{self.deadline_s:.0f} s; allow more time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotState:
    """Where a task stands."""

    at_s: float
    done_s: float
    present: Market
    """What it trains on; WAIT also where a spot instance has just been taken back."""
    is_available: bool
    """Whether a spot instance could be had."""
    starting_s: float = 0.0
    """How long the present instance still takes until it trains."""
    zone: int = 0
    """Where its spot instance is, if they come and go in several places."""
    age_s: float = 0.0
    """For how long spot instances have been there, or away."""


class SpotRule(Protocol):
    """Decides what a task trains on from now on."""

    def __call__(self, task: SpotTask, state: SpotState, *, step_s: float = 0.0) -> Market:
        """Return it; `step_s` is how long it may take until the rule is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """Where a task on several instances stands."""

    at_s: float
    done_s: float
    num_on_demand: int
    """How many of its instances are held on demand."""
    is_available: bool
    """Whether further spot instances could be had."""
    age_s: float = 0.0
    """For how long that is so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChoice:
    """What becomes of the instances of a task."""

    buy: Market
    """Where those come from that are missing; WAIT: nowhere, until spot instances can be had."""
    replaced: Market | None = None
    """Instances of this market go as soon as others are ready in their place."""


ALWAYS_ON_DEMAND = FleetChoice(buy=Market.ON_DEMAND)
ALL_ON_DEMAND = FleetChoice(buy=Market.ON_DEMAND, replaced=Market.SPOT)
"""No time is left for the loss of a spot instance."""
PAYS_FROM = 2.0
"""An instance on demand is replaced where more work is left than so many switches: both are paid for meanwhile."""


def follow_progress(task: SpotTask, state: SpotState, *, step_s: float = 0.0) -> Market:
    """Decide by uniform progress, the rule of Wu et al., "Can't Be Late" (NSDI 2024).

    Who is behind an even pace pays for an instance on demand until the pace is met again with two switches to spare.
    Who is ahead waits for a spot instance. One that is there is used until it is taken back. When no more time is left
    than a change to on demand and the rest on it take, that is what happens. `step_s` is how long it may take until the
    rule is asked again.
    """
    if state.done_s >= task.work_s:
        return Market.WAIT
    if must_pay(task, state, step_s):
        return Market.ON_DEMAND
    pace = task.work_s / task.deadline_s
    if state.present is Market.ON_DEMAND and state.done_s < pace * (state.at_s + 2 * task.switch_s):
        return Market.ON_DEMAND
    if state.is_available:
        return Market.SPOT
    return Market.ON_DEMAND if state.done_s < pace * state.at_s else Market.WAIT


def choose_markets(
    task: SpotTask, state: FleetState, *, step_s: float = 0.0, rule: SpotRule = follow_progress
) -> FleetChoice:
    """Decide by a rule for instances that share a task, and so are as far as each other.

    An instance that is missing comes from where the rule would go for one that was just taken back. One that is held
    on demand is replaced when the rule would leave it, and spot instances when it would give them up.
    """
    at = SpotState(
        at_s=state.at_s,
        done_s=state.done_s,
        present=Market.WAIT,
        is_available=state.is_available,
        age_s=state.age_s,
    )
    safe = rule(task, replace(at, present=Market.SPOT, is_available=True), step_s=step_s)
    if safe is Market.ON_DEMAND:
        return ALL_ON_DEMAND
    if state.num_on_demand and task.work_s - state.done_s > PAYS_FROM * task.switch_s:
        paid = rule(task, replace(at, present=Market.ON_DEMAND), step_s=step_s)
        if paid is Market.SPOT:
            return FleetChoice(buy=Market.SPOT, replaced=Market.ON_DEMAND)
    return FleetChoice(buy=rule(task, at, step_s=step_s))


def must_pay(task: SpotTask, state: SpotState, step_s: float) -> bool:
    """Tell whether anything but an instance on demand could be too late, until it is asked again after a step."""
    left = task.deadline_s - state.at_s - (task.work_s - state.done_s)
    if state.present is Market.ON_DEMAND:  # another change must still fit afterwards
        return left < state.starting_s + 2 * task.switch_s + step_s
    return left < task.switch_s + 2 * step_s
