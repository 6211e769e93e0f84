"""What a rule for spot instances comes to on a trace of what was really to be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headwater.plan.spot import Market, SpotState, SpotTask
from headwater.plan.spot_odds import Prices

Decide: TypeAlias = Callable[[SpotTask, SpotState, float], Market]
"""What to hold, given also for how many seconds spot instances have been there or away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """What came of a task."""

    cost_dollars: float
    seconds: float
    is_late: bool
    num_lost: int
    """How often a spot instance was taken back."""
    on_demand_s: float


def run_on_trace(task: SpotTask, available: Sequence[bool], step_s: float, prices: Prices, decide: Decide) -> SpotRun:
    """Run a task by a rule that is asked at every step of a trace."""
    at = done = cost = starting = on_demand = age = 0.0
    present, num_lost = Market.WAIT, 0
    for place, is_there in enumerate(available):
        age = age + step_s if place and is_there == available[place - 1] else 0.0
        if present is Market.SPOT and not is_there:
            present, num_lost = Market.WAIT, num_lost + 1
        state = SpotState(at_s=at, done_s=done, present=present, is_available=bool(is_there), starting_s=starting)
        chosen = decide(task, state, age)
        assert chosen is not Market.SPOT or is_there
        if chosen is not present:
            present, starting = chosen, task.switch_s
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
