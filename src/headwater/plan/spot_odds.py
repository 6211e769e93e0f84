"""The best rule for spot instances, if it is known how often they come and go, and the best that hindsight could do.

Both are the same sum, worked out backwards from the deadline in steps of time: what the rest costs at least, for each
amount of work that is left, for what is held, and for whether a spot instance is to be had. With odds it is the mean
cost, and a step that could end too late costs more than anything. With a trace it is what a clairvoyant pays.
Shapes: S = spot instances there or away, by age; M = what is held; W = steps of work that are left, from none to all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import PlanError
from headwater.plan.spot import Market, SpotState, SpotTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOO_LATE = 1e9
"""What it costs to miss the deadline."""
ACTIONS = (Market.WAIT, Market.SPOT, Market.ON_DEMAND)
AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""From so many steps on, a stretch of time with or without spot instances is told from shorter ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for an hour."""

    spot: float
    on_demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOdds:
    """How likely spot instances come and go in one step, by how long they have been there or away."""

    step_s: float
    lost: tuple[float, ...]
    """By age, as in `AGES`: how likely one that is there is gone a step later."""
    back: tuple[float, ...]

    @classmethod
    def fit(cls, available: Sequence[bool], step_s: float) -> SpotOdds:
        """Read the odds off a trace of the past; where it has little to tell, ages are taken to make no difference."""
        counts = {is_there: [[0.0, 0.0] for _ in AGES] for is_there in (True, False)}
        age = 0
        for before, after in pairwise(available):
            place = _find_age(age)
            counts[bool(before)][place][0] += 1
            counts[bool(before)][place][1] += before != after
            age = age + 1 if before == after else 0
        return cls(step_s=step_s, lost=_smooth(counts[True]), back=_smooth(counts[False]))


class SpotPolicy:
    """The rule that costs least on average by these odds, and never misses the deadline whatever happens."""

    def __init__(self, task: SpotTask, odds: SpotOdds, prices: Prices) -> None:
        self._grid = _Grid.of(task, odds.step_s, prices)
        self._tables = [actions.astype(np.int8) for actions in _step_back_all(self._grid, _Chain.of(odds))][::-1]

    def decide(self, task: SpotTask, state: SpotState, age_s: float) -> Market:
        """Return what to hold, if spot instances have been there or away for so long."""
        grid = self._grid
        if state.done_s >= task.work_s:
            return Market.WAIT
        time = min(grid.num_steps - 1, math.ceil(state.at_s / grid.step_s - 1e-9))
        left = min(grid.work, math.ceil((task.work_s - state.done_s) / grid.step_s - 1e-9))
        place = _find_age(int(age_s / grid.step_s)) + (0 if state.is_available else len(AGES))
        return ACTIONS[int(self._tables[time][place, grid.find_mode(state), left])]


def bound_cost(task: SpotTask, available: Sequence[bool], step_s: float, prices: Prices) -> float:
    """Return what the task costs at least, for who knows the whole trace from the beginning."""
    grid = _Grid.of(task, step_s, prices)
    if len(available) < grid.num_steps:
        raise PlanError(f"the trace has {len(available)} steps, and the deadline is after {grid.num_steps}")
    costs_MW = grid.end()
    for place in range(grid.num_steps - 1, -1, -1):
        is_next = place + 1 < len(available) and available[place + 1]
        costs_MW, _ = grid.step_back(grid.lose_spot(costs_MW) if not is_next else costs_MW, bool(available[place]))
    return float(costs_MW[0, -1])


@dataclass(frozen=True, slots=True)
class _Grid:
    """A task in whole steps. Modes: nothing held; spot, by the steps until it trains; on demand, likewise."""

    step_s: float
    num_steps: int
    work: int
    switch: int
    spot: float
    on_demand: float

    @classmethod
    def of(cls, task: SpotTask, step_s: float, prices: Prices) -> _Grid:
        return cls(
            step_s,
            int(task.deadline_s / step_s + 1e-9),
            math.ceil(task.work_s / step_s - 1e-9),
            math.ceil(task.switch_s / step_s - 1e-9),
            prices.spot * step_s / 3600,
            prices.on_demand * step_s / 3600,
        )

    @property
    def num_modes(self) -> int:
        return 1 + 2 * max(1, self.switch)

    def find_mode(self, state: SpotState) -> int:
        if state.present is Market.WAIT:
            return 0
        starting = min(max(0, self.switch - 1), math.ceil(state.starting_s / self.step_s - 1e-9))
        return 1 + starting + (max(1, self.switch) if state.present is Market.ON_DEMAND else 0)

    def end(self) -> NDArray[Any]:
        costs_MW = np.full((self.num_modes, self.work + 1), TOO_LATE)
        costs_MW[:, 0] = 0.0
        return costs_MW

    def lose_spot(self, costs_MW: NDArray[Any]) -> NDArray[Any]:
        lost = costs_MW.copy()
        lost[1 : 1 + max(1, self.switch)] = costs_MW[0]
        return lost

    def step_back(self, after_MW: NDArray[Any], is_available: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what the rest costs a step earlier, and what to do then."""
        choices = np.full((3, *after_MW.shape), TOO_LATE)
        choices[0] = after_MW[0]
        if is_available:
            choices[1] = self._hold(after_MW, 1, self.spot)
        choices[2] = self._hold(after_MW, 1 + max(1, self.switch), self.on_demand)
        actions_MW = choices.argmin(0)
        costs_MW = choices.min(0)
        costs_MW[:, 0] = 0.0
        return costs_MW, actions_MW

    def _hold(self, after_MW: NDArray[Any], first: int, price: float) -> NDArray[Any]:
        """Return the costs of holding an instance of a market for a step, from every mode."""
        depth = max(1, self.switch)
        held = np.empty_like(after_MW)
        trained = np.concatenate([after_MW[first, :1], after_MW[first, :-1]])
        held[:] = trained if not self.switch else after_MW[first + depth - 1]
        if self.switch:
            held[first] = trained
            for starting in range(1, depth):
                held[first + starting] = after_MW[first + starting - 1]
        return np.minimum(held + price, TOO_LATE)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Spot instances as a Markov chain: there or away, each for one of the ages."""

    matrix: NDArray[Any]
    is_there: tuple[bool, ...]

    @classmethod
    def of(cls, odds: SpotOdds) -> _Chain:
        count = len(AGES)
        matrix = np.zeros((2 * count, 2 * count))
        for side, ending in ((0, odds.lost), (count, odds.back)):
            for place, chance in enumerate(ending):
                width = AGES[place + 1] - AGES[place] if place + 1 < count else math.inf
                matrix[side + place, count - side] += chance  # a new stretch on the other side
                older = (1 - chance) / width
                matrix[side + place, side + min(place + 1, count - 1)] += older
                matrix[side + place, side + place] += 1 - chance - older
        return cls(matrix, (True,) * count + (False,) * count)


def _step_back_all(grid: _Grid, chain: _Chain) -> Iterator[NDArray[Any]]:
    """Yield what to do in each step, the last one first."""
    costs_SMW = np.stack([grid.end()] * len(chain.is_there))
    for _ in range(grid.num_steps):
        arrived_SMW = np.stack(
            [one if there else grid.lose_spot(one) for one, there in zip(costs_SMW, chain.is_there, strict=True)]
        )
        expected_SMW = np.minimum(np.tensordot(chain.matrix, arrived_SMW, axes=1), TOO_LATE)
        expected_SMW[np.tensordot(chain.matrix > 0, arrived_SMW >= TOO_LATE, axes=1) > 0] = TOO_LATE
        steps = [grid.step_back(one, there) for one, there in zip(expected_SMW, chain.is_there, strict=True)]
        costs_SMW = np.stack([step[0] for step in steps])
        yield np.stack([step[1] for step in steps])


def _find_age(age: int) -> int:
    return max(place for place, least in enumerate(AGES) if least <= age)


def _smooth(counts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return shares, each drawn towards that of all ages by as much as ten observations would."""
    total, ended = (sum(one[kind] for one in counts) for kind in (0, 1))
    overall = (ended + 0.5) / (total + 1)
    return tuple((one[1] + 10 * overall) / (one[0] + 10) for one in counts)
