"""What a rule for spot instances comes to on traces of what was really to be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headwater.plan.spot import FleetState, Market, SpotRule, SpotState, SpotTask, choose_markets, follow_progress
from headwater.plan.spot_odds import AGES, Prices, Zone

Decide: TypeAlias = Callable[[SpotTask, SpotState, Sequence[Zone]], tuple[Market, int]]
"""What to hold, and in which zone, given also what is seen of each zone."""


AGES_OF_TWO, AGES_OF_MORE = (0, 4, 32, 256), (0, 16)
"""The ages of two zones and of more, where the table of all zones has a state for each combination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """What came of a task."""

    cost_dollars: float
    seconds: float
    is_late: bool
    num_lost: int
    """How often a spot instance was taken back."""
    on_demand_s: float


def choose_ages(num_zones: int) -> tuple[int, ...]:
    """Return by which ages to tell stretches of time apart, in so many zones."""
    return AGES if num_zones == 1 else AGES_OF_TWO if num_zones == 2 else AGES_OF_MORE


def keep_pace(step_s: float) -> Decide:
    """Return uniform progress as a rule: in the zone where it is, or the first that has a spot instance."""

    def decide(task: SpotTask, state: SpotState, zones: Sequence[Zone]) -> tuple[Market, int]:
        market = follow_progress(task, state, step_s=step_s)
        is_here = state.present is Market.SPOT and zones[state.zone].is_available
        there = [place for place, zone in enumerate(zones) if zone.is_available]
        return market, state.zone if is_here or not there else there[0]

    return decide


def decide_as_run(rule: SpotRule, step_s: float) -> Decide:
    """Return what a run on nodes does by a rule (`cloud.spot_rule`), which here has one node, in one zone."""

    def decide(task: SpotTask, state: SpotState, zones: Sequence[Zone]) -> tuple[Market, int]:
        fleet = FleetState(
            at_s=state.at_s,
            done_s=state.done_s,
            num_on_demand=int(state.present is Market.ON_DEMAND),
            is_available=state.is_available,
            age_s=zones[0].age_s,
        )
        choice = choose_markets(task, fleet, step_s=step_s, rule=rule)
        return (choice.buy if state.present in (Market.WAIT, choice.replaced) else state.present), 0

    return decide


def run_on_traces(
    task: SpotTask, traces: Sequence[Sequence[bool]], step_s: float, prices: Prices, decide: Decide
) -> SpotRun:
    """Run a task by a rule that is asked at every step of the traces, one of each zone."""
    at = done = cost = starting = on_demand = 0.0
    present, zone, num_lost = Market.WAIT, 0, 0
    ages = [0.0] * len(traces)
    for place, there in enumerate(zip(*traces, strict=True)):
        ages = [
            age + step_s if place and is_there == trace[place - 1] else 0.0
            for age, is_there, trace in zip(ages, there, traces, strict=True)
        ]
        if present is Market.SPOT and not there[zone]:
            present, num_lost = Market.WAIT, num_lost + 1
        state = SpotState(
            at_s=at, done_s=done, present=present, is_available=any(there), starting_s=starting, zone=zone
        )
        seen = [Zone(is_available=bool(one), age_s=age) for one, age in zip(there, ages, strict=True)]
        chosen = decide(task, state, seen)
        assert chosen[0] is not Market.SPOT or there[chosen[1]]
        if chosen[0] is not present or (present is Market.SPOT and chosen[1] != zone):
            (present, zone), starting = chosen, task.switch_s
        if present is Market.WAIT:
            at += step_s
            continue
        held = min(step_s, starting + task.work_s - done)
        done += max(0.0, held - starting)
        starting = max(0.0, starting - held)
        cost += held / 3600 * (prices.spot if present is Market.SPOT else prices.on_demand)
        on_demand += held if present is Market.ON_DEMAND else 0.0
        at += held
        if done >= task.work_s - 1e-6:
            break
    is_late = done < task.work_s - 1e-6 or at > task.deadline_s + 1e-6
    return SpotRun(cost_dollars=cost, seconds=at, is_late=is_late, num_lost=num_lost, on_demand_s=on_demand)
