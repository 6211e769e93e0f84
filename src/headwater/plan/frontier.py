"""The best plan there is, found exactly: every plan that could still be it is followed to its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.plan.elastic import (
    Allocation,
    Holding,
    Limits,
    Prediction,
    list_options,
    plan_fastest,
    plan_greedily,
    predict,
    train_seconds,
    training_device_seconds,
)
from headwater.plan.jobs import Billing, Job, JobStage

ROUNDING = 1e-9
NUM_PRICES = 10
"""A second is priced as 1, 2, 4, ... instances cost to see what the rest of a plan must come to."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A plan for the first stages."""

    holding: Holding
    devices: Allocation


@dataclass(frozen=True, slots=True)
class _Rest:
    """What the stages that are left take and cost at the very least."""

    seconds: float
    cost_dollars: float
    priced: tuple[tuple[float, float], ...]
    """Pairs: a price for a second, and the least that cost and time at this price add up to."""

    def bound_cost(self, seconds_left: float | None) -> float:
        """Return what the rest costs at least, if it may take so long."""
        if seconds_left is None:
            return self.cost_dollars
        return max(self.cost_dollars, *(least - price * seconds_left for price, least in self.priced))


def plan_exactly(job: Job, limits: Limits, most_starts: float = math.inf) -> Prediction | None:
    """Return the best plan there is; None where none keeps to the limits, or where it has more starts to follow.

    A plan for the first stages is given up if another one is as fast and as cheap and holds as many instances, or if
    the rest, at its least, breaks a limit or costs more than the plan that the greedy search has found.
    """
    if limits.deadline_s is not None and plan_fastest(job).seconds > limits.deadline_s:
        return None
    known = plan_greedily(job, limits)
    bounds = _tighten(limits, known)
    starts = [_Start(Holding(), ())]
    rests = _bound_rests(job)
    for stage, options, rest in zip(job.stages, list_options(job), rests, strict=True):
        if len(starts) * len(options) > most_starts:
            return None
        grown = list(_extend(job, stage, starts, options))
        starts = _keep_undominated([start for start in grown if _may_do(start, rest, bounds)], job)
    found = [predict(job, start.devices) for start in starts]
    plans = [plan for plan in ([known, *found] if known else found) if limits.admit(plan)]
    return min(plans, key=limits.rank, default=None)


def trace_prices(
    job: Job, deadlines_s: Sequence[float], most_starts: float = math.inf
) -> list[tuple[float, Prediction]]:
    """Return the cheapest plan for each of these deadlines that can be met; a greedy one where that has more starts."""
    limits = [Limits(deadline_s=deadline) for deadline in deadlines_s]
    plans = (plan_exactly(job, one, most_starts) or plan_greedily(job, one) for one in limits)
    found = zip(deadlines_s, plans, strict=True)
    return [(deadline, plan) for deadline, plan in found if plan is not None]


def _tighten(limits: Limits, known: Prediction | None) -> Limits:
    """Return the limits that a plan must keep to in order to be no worse than one that is known."""
    if known is None:
        return limits
    if limits.deadline_s is None and limits.budget_dollars is not None:
        return Limits(deadline_s=known.seconds, budget_dollars=limits.budget_dollars)
    return Limits(deadline_s=limits.deadline_s, budget_dollars=known.cost_dollars)


def _bound_rests(job: Job) -> list[_Rest]:
    """Return for each stage what those after it take and cost at least, no launch counted."""
    stages = list(zip(job.stages, list_options(job), strict=True))
    figures = [
        [(train_seconds(job, stage, count), _least_cost(job, stage, count)) for count in options]
        for stage, options in stages
    ]
    prices = [job.instance.dollars_per_second * 2**power for power in range(NUM_PRICES)]
    rests = []
    for number in range(len(stages)):
        later = figures[number + 1 :]
        priced = tuple((price, sum(min(cost + price * s for s, cost in one) for one in later)) for price in prices)
        seconds, cost = (sum(min(figure[kind] for figure in one) for one in later) for kind in (0, 1))
        rests.append(_Rest(seconds, cost, priced))
    return rests


def _least_cost(job: Job, stage: JobStage, num_devices: int) -> float:
    instance = job.instance
    if job.billing is Billing.FUNCTION:
        device_s = training_device_seconds(job, stage, num_devices)
        return device_s * instance.dollars_per_second / instance.num_devices
    held_s = instance.count_for(num_devices) * train_seconds(job, stage, num_devices)
    return held_s * instance.dollars_per_second


def _extend(job: Job, stage: JobStage, starts: Sequence[_Start], options: Sequence[int]) -> Iterator[_Start]:
    for start in starts:
        for count in options:
            yield _Start(start.holding.run_stage(job, stage, count), (*start.devices, count))


def _may_do(start: _Start, rest: _Rest, bounds: Limits) -> bool:
    left = None if bounds.deadline_s is None else bounds.deadline_s - start.holding.seconds
    if left is not None and rest.seconds > left + ROUNDING:
        return False
    cost = start.holding.cost_dollars + rest.bound_cost(left)
    return bounds.budget_dollars is None or cost <= bounds.budget_dollars + ROUNDING


def _keep_undominated(starts: Sequence[_Start], job: Job) -> list[_Start]:
    """Keep those that nothing beats: that nothing as fast and as cheap holds as many instances as.

    Instances too many can be given back, and cost at most what they are charged while they wait with the others for new
    ones. What the minimum charge adds to an instance that is given back early is counted as spent for whoever beats
    another, and as not spent for whoever is beaten.
    """
    ordered = sorted(starts, key=lambda start: (start.holding.seconds, start.holding.cost_dollars))
    most = max((start.holding.num_held for start in ordered), default=0)
    waiting = sum(job.instance.expect_wait(job.instance.count_for(job.most_devices))) * job.instance.dollars_per_second
    least = _LeastAbove(most)
    kept = []
    for start in ordered:
        held = start.holding.num_held
        if start.holding.cost_dollars + held * waiting < least.read(held):
            kept.append(start)
        least.note(held, start.holding.release_all(job).cost_dollars + held * waiting)
    return kept


class _LeastAbove:
    """The least number noted at a place or above it, as a Fenwick tree."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tree = [float("inf")] * (most + 2)

    def note(self, place: int, value: float) -> None:
        """Take in a value."""
        index = self._most - place + 1
        while index < len(self._tree):
            self._tree[index] = min(self._tree[index], value)
            index += index & -index

    def read(self, place: int) -> float:
        """Return the least value at this place or above."""
        index, least = self._most - place + 1, float("inf")
        while index > 0:
            least = min(least, self._tree[index])
            index -= index & -index
        return least
