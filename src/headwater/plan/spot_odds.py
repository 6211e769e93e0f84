"""The best rule for spot instances, if it is known how often they come and go, and the best that hindsight could do.

Both are the same sum, worked out backwards from the deadline in steps of time: what the rest costs at least, for each
amount of work that is left, for what is held, and for where a spot instance is to be had. With odds it is the mean
cost, and a step that could end too late costs more than anything. With a trace it is what a clairvoyant pays.
A zone is a place where spot instances come and go by themselves; who trains in one can change to another.
Shapes: S = spot instances there or away, by age, in all zones together; Z = zones; M = what is held;
W = steps of work that are left, from none to all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import PlanError
from headwater.plan.spot import Market, SpotState, SpotTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOO_LATE = 1e9
"""What it costs to miss the deadline."""
AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""From so many steps on, a stretch of time with or without spot instances is told from shorter ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for an hour."""

    spot: float
    on_demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """What is seen of a zone."""

    is_available: bool
    """Whether a spot instance could be had there."""
    age_s: float
    """For how long that is so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOdds:
    """How likely spot instances of a zone come and go in one step, by how long they have been there or away."""

    step_s: float
    lost: tuple[float, ...]
    """By age, as in `ages`: how likely one that is there is gone a step later."""
    back: tuple[float, ...]
    ages: tuple[int, ...] = AGES

    @classmethod
    def fit(cls, available: Sequence[bool], step_s: float, ages: tuple[int, ...] = AGES) -> SpotOdds:
        """Read the odds off a trace of the past; where it has little to tell, ages are taken to make no difference."""
        counts = {is_there: [[0.0, 0.0] for _ in ages] for is_there in (True, False)}
        age = 0
        for before, after in pairwise(available):
            place = _find_age(ages, age)
            counts[bool(before)][place][0] += 1
            counts[bool(before)][place][1] += before != after
            age = age + 1 if before == after else 0
        return cls(step_s=step_s, lost=_smooth(counts[True]), back=_smooth(counts[False]), ages=ages)

    def find_place(self, zone: Zone) -> int:
        """Return at which of the states of its chain a zone is: there, by age, and then away, by age."""
        return _find_age(self.ages, int(zone.age_s / self.step_s)) + (0 if zone.is_available else len(self.ages))


class SpotPolicy:
    """The rule that costs least on average by these odds, and never misses the deadline whatever happens.

    Args:
        task: What is to be done by when.
        odds: Those of each zone, which are taken to be independent.
        prices: The same in all zones.
    """

    def __init__(self, task: SpotTask, odds: Sequence[SpotOdds], prices: Prices) -> None:
        self._odds = odds
        self._grid = _Grid.of(task, odds[0].step_s, prices, len(odds))
        self._tables = [actions.astype(np.int8) for actions in _step_back_all(self._grid, _Chain.of(odds))][::-1]

    def decide(self, task: SpotTask, state: SpotState, zones: Sequence[Zone]) -> tuple[Market, int]:
        """Return what to hold, and in which zone."""
        grid = self._grid
        if state.done_s >= task.work_s:
            return Market.WAIT, 0
        left_s = task.work_s - state.done_s
        left = min(grid.work, math.ceil(left_s / grid.step_s - 1e-9))
        spare = math.floor((task.deadline_s - state.at_s - left_s) / grid.step_s + 1e-9)
        time = min(max(grid.num_steps - left - spare, 0), grid.num_steps - 1)
        place = 0
        for odds, zone in zip(self._odds, zones, strict=True):
            place = place * 2 * len(odds.ages) + odds.find_place(zone)
        action = int(self._tables[time][place, grid.find_mode(state), left])
        if action < grid.num_zones:
            return Market.SPOT, action
        return (Market.ON_DEMAND if action == grid.num_zones else Market.WAIT), 0


def bound_cost(task: SpotTask, traces: Sequence[Sequence[bool]], step_s: float, prices: Prices) -> float:
    """Return what the task costs at least, for who knows the traces of all zones from the beginning."""
    grid = _Grid.of(task, step_s, prices, len(traces))
    shortest = min(len(trace) for trace in traces)
    if shortest < grid.num_steps:
        raise PlanError(f"the trace has {shortest} steps, and the deadline is after {grid.num_steps}")
    costs_SMW = grid.end(1)
    nothing = np.zeros((1, len(traces)), dtype=bool)
    there = np.array([trace[:shortest] for trace in traces], dtype=bool).T
    for place in range(grid.num_steps - 1, -1, -1):
        is_next = there[place + 1 : place + 2] if place + 1 < shortest else nothing
        costs_SMW, _ = grid.step_back(grid.lose_spot(costs_SMW, is_next), there[place : place + 1])
    return float(costs_SMW[0, 0, -1])


@dataclass(frozen=True, slots=True)
class _Grid:
    """A task in whole steps. Modes: nothing held; spot in each zone, by the steps until it trains; on demand, too."""

    step_s: float
    num_steps: int
    work: int
    switch: int
    spot: float
    on_demand: float
    num_zones: int

    @classmethod
    def of(cls, task: SpotTask, step_s: float, prices: Prices, num_zones: int) -> _Grid:
        work = math.ceil(task.work_s / step_s - 1e-9)
        return cls(
            step_s,
            work + int((task.deadline_s - task.work_s) / step_s + 1e-9),
            work,
            math.ceil(task.switch_s / step_s - 1e-9),
            prices.spot * step_s / 3600,
            prices.on_demand * step_s / 3600,
            num_zones,
        )

    @property
    def depth(self) -> int:
        return max(1, self.switch)

    def find_mode(self, state: SpotState) -> int:
        if state.present is Market.WAIT:
            return 0
        starting = min(max(0, self.switch - 1), math.ceil(state.starting_s / self.step_s - 1e-9))
        return 1 + starting + self.depth * (state.zone if state.present is Market.SPOT else self.num_zones)

    def end(self, num_states: int) -> NDArray[Any]:
        costs_SMW = np.full((num_states, 1 + (self.num_zones + 1) * self.depth, self.work + 1), TOO_LATE)
        costs_SMW[:, :, 0] = 0.0
        return costs_SMW

    def lose_spot(self, costs_SMW: NDArray[Any], there_SZ: NDArray[Any]) -> NDArray[Any]:
        lost = costs_SMW.copy()
        for zone in range(self.num_zones):
            first, away = 1 + zone * self.depth, ~there_SZ[:, zone]
            lost[away, first : first + self.depth] = costs_SMW[away, :1]
        return lost

    def step_back(self, after_SMW: NDArray[Any], there_SZ: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what the rest costs a step earlier, and what to do then: spot in a zone, on demand, or wait.

        Of choices that cost the same the first is taken; on demand is what is nearest to in time where all are late.
        """
        choices = np.full((2 + self.num_zones, *after_SMW.shape), TOO_LATE)
        for zone in range(self.num_zones):
            there = there_SZ[:, zone]
            choices[zone, there] = self._hold(after_SMW[there], 1 + zone * self.depth, self.spot)
        choices[-2] = self._hold(after_SMW, 1 + self.num_zones * self.depth, self.on_demand)
        choices[-1] = after_SMW[:, :1]
        costs_SMW, actions_SMW = choices.min(0), choices.argmin(0)
        actions_SMW[costs_SMW >= TOO_LATE] = self.num_zones
        costs_SMW[:, :, 0] = 0.0
        return costs_SMW, actions_SMW

    def _hold(self, after_SMW: NDArray[Any], first: int, price: float) -> NDArray[Any]:
        """Return the costs of holding an instance of a market for a step, from every mode."""
        held = np.empty_like(after_SMW)
        trained = np.concatenate([after_SMW[:, first, :1], after_SMW[:, first, :-1]], axis=1)
        held[:] = (after_SMW[:, first + self.depth - 1] if self.switch else trained)[:, None]
        if self.switch:
            held[:, first] = trained
            for starting in range(1, self.depth):
                held[:, first + starting] = after_SMW[:, first + starting - 1]
        return np.minimum(held + price, TOO_LATE)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Spot instances as a Markov chain: there or away, each for one of the ages, in every zone."""

    matrix: NDArray[Any]
    there: NDArray[Any]
    """Whether a spot instance is there, by state and zone."""

    @classmethod
    def of(cls, odds: Sequence[SpotOdds]) -> _Chain:
        sides = ([True] * len(one.ages) + [False] * len(one.ages) for one in odds)
        return cls(reduce(np.kron, map(_chain_zone, odds)), np.array(list(product(*sides))))


def _chain_zone(odds: SpotOdds) -> NDArray[Any]:
    ages, count = odds.ages, len(odds.ages)
    matrix = np.zeros((2 * count, 2 * count))
    for side, ending in ((0, odds.lost), (count, odds.back)):
        for place, chance in enumerate(ending):
            width = ages[place + 1] - ages[place] if place + 1 < count else math.inf
            matrix[side + place, count - side] += chance  # a new stretch on the other side
            older = (1 - chance) / width
            matrix[side + place, side + min(place + 1, count - 1)] += older
            matrix[side + place, side + place] += 1 - chance - older
    return matrix


def _step_back_all(grid: _Grid, chain: _Chain) -> Iterator[NDArray[Any]]:
    """Yield what to do in each step, the last one first."""
    num_states = len(chain.matrix)
    costs_SMW = grid.end(num_states)
    is_possible = (chain.matrix > 0).astype(float)
    for _ in range(grid.num_steps):
        arrived = grid.lose_spot(costs_SMW, chain.there).reshape(num_states, -1)
        expected = chain.matrix @ arrived
        expected[is_possible @ (arrived >= TOO_LATE) > 0] = TOO_LATE
        costs_SMW, actions_SMW = grid.step_back(expected.reshape(costs_SMW.shape), chain.there)
        yield actions_SMW


def _find_age(ages: Sequence[int], age: int) -> int:
    return max(place for place, least in enumerate(ages) if least <= age)


def _smooth(counts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return shares, each drawn towards that of all ages by as much as ten observations would."""
    total, ended = (sum(one[kind] for one in counts) for kind in (0, 1))
    overall = (ended + 0.5) / (total + 1)
    return tuple((one[1] + 10 * overall) / (one[0] + 10) for one in counts)
