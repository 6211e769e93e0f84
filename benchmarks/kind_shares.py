"""How much of each kind of device everybody has: the best shares by a linear programme, or good ones with their gap.

The programme is that of Gavel, a scheduler of clusters of unlike devices: shares are times on devices of each kind, and
what somebody gets done is the sum of his shares by his speeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any

from headwater.errors import PlanError

MOST_EXACT = 600
"""Numbers of groups times kinds up to which the programme is solved exactly."""
NUM_PRICES = 200
"""So often are prices of kinds corrected, for shares that are not solved exactly."""


class Goal(StrEnum):
    """What shares are good for."""

    FAIREST = "fairest"
    """Who gets least done, as a multiple of what an equal share of every kind would do for him, gets most."""
    SOONEST = "soonest"
    """Much is done of what is short: the sum of speeds, each over what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A group, or all groups of a study, that shares devices with others."""

    key: str
    rates: Mapping[str, float]
    """By kind of device: what it gets done on one in a second; 0 where it cannot train there."""
    most_devices: float = 1.0
    """How many devices it can use."""
    weight: float = 1.0
    work_left: float = 1.0
    """What it has to get done, in the same unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindShares:
    """How many devices of each kind everybody has, on the mean over time."""

    shares: Mapping[str, Mapping[str, float]]
    value: float
    """How good they are, by the goal."""
    bound: float
    """No shares are better than this."""

    @property
    def gap(self) -> float:
        """How far they are from the bound at most, as a share of it."""
        return 1 - self.value / self.bound if self.bound > 0 else 0.0


def share_kinds(
    contenders: Sequence[Contender],
    counts: Mapping[str, int],
    goal: Goal = Goal.FAIREST,
    *,
    is_exact: bool | None = None,
) -> KindShares:
    """Share devices of several kinds; exactly where that is quick, or as asked.

    Raises:
        PlanError: A number makes no sense, or SciPy is missing, which exact shares need.
    """
    _require_sense(contenders, counts)
    kinds = sorted(kind for kind in counts if counts[kind] > 0)
    able = [one for one in contenders if any(one.rates.get(kind, 0.0) > 0 for kind in kinds) and one.most_devices > 0]
    if not able:
        return KindShares(shares={one.key: {} for one in contenders}, value=0.0, bound=0.0)
    if is_exact is None:
        is_exact = len(able) * len(kinds) <= MOST_EXACT
    market = _Market(able, kinds, counts)
    found = (_solve if is_exact else _fill)(market, goal)
    shares: dict[str, Mapping[str, float]] = {one.key: {} for one in contenders}
    shares.update(found.shares)
    return KindShares(shares=shares, value=found.value, bound=max(found.bound, found.value))


class _Market:
    """Contenders and kinds as rows and columns."""

    def __init__(self, able: Sequence[Contender], kinds: Sequence[str], counts: Mapping[str, int]) -> None:
        self.able = able
        self.kinds = kinds
        self.counts = [counts[kind] for kind in kinds]
        self.rates = [[one.rates.get(kind, 0.0) for kind in kinds] for one in able]
        total = sum(self.counts)
        weights = math.fsum(one.weight for one in able)
        parts = [min(one.weight / weights, one.most_devices / total) for one in able]
        self.equal = [
            part * math.fsum(rate * count for rate, count in zip(row, self.counts, strict=True))
            for part, row in zip(parts, self.rates, strict=True)
        ]
        """What an equal share of every kind does for each."""

    def value(self, goal: Goal, devices: Sequence[Sequence[float]]) -> float:
        done = [
            math.fsum(rate * count for rate, count in zip(rates, row, strict=True))
            for rates, row in zip(self.rates, devices, strict=True)
        ]
        if goal is Goal.FAIREST:
            return min(amount / equal for amount, equal in zip(done, self.equal, strict=True))
        return math.fsum(amount / one.work_left for amount, one in zip(done, self.able, strict=True))

    def conclude(self, goal: Goal, devices: Sequence[Sequence[float]], bound: float) -> KindShares:
        shares = {
            one.key: {kind: count for kind, count in zip(self.kinds, row, strict=True) if count > 1e-9}
            for one, row in zip(self.able, devices, strict=True)
        }
        return KindShares(shares=shares, value=self.value(goal, devices), bound=bound)


def _solve(market: _Market, goal: Goal) -> KindShares:
    """Solve the programme: first for who gets least, then, without harm to him, for the sum of all."""
    num_rows, num_kinds = len(market.able), len(market.kinds)
    num_shares = num_rows * num_kinds
    by_kind = [[float(place % num_kinds == kind) for place in range(num_shares)] for kind in range(num_kinds)]
    by_row = [[float(place // num_kinds == row) for place in range(num_shares)] for row in range(num_rows)]
    limits = [*market.counts, *(one.most_devices for one in market.able)]
    if goal is Goal.SOONEST:
        gains = [rate / one.work_left for one, row in zip(market.able, market.rates, strict=True) for rate in row]
        found = _optimise([-gain for gain in gains], [*by_kind, *by_row], limits)
        return market.conclude(goal, _fold(found, num_kinds), bound=-_dot(found, [-gain for gain in gains]))
    gains = [rate / equal for equal, row in zip(market.equal, market.rates, strict=True) for rate in row]
    floors = [[-gain * mine for gain, mine in zip(gains, row, strict=True)] for row in by_row]
    rows = [[*row, 0.0] for row in (*by_kind, *by_row)] + [[*row, 1.0] for row in floors]
    least = _optimise([0.0] * num_shares + [-1.0], rows, [*limits, *([0.0] * num_rows)])[-1]
    kept = [-least * (1 - 1e-7)] * num_rows
    found = _optimise([-gain for gain in gains], [*by_kind, *by_row, *floors], [*limits, *kept])
    return market.conclude(goal, _fold(found, num_kinds), bound=least)


def _optimise(costs: Sequence[float], rows: Sequence[Sequence[float]], limits: Sequence[float]) -> list[float]:
    linprog = _load_linprog()
    scale = 1e3 / max(map(abs, costs))  # what is far below 1 would count as nothing
    answer = linprog([scale * cost for cost in costs], A_ub=rows, b_ub=limits, bounds=(0, None), method="highs")
    assert answer.status == 0, answer.message  # nothing for anybody is feasible, and devices are finite
    return [float(number) for number in answer.x]


def _load_linprog() -> Any:  # Any: SciPy has no types
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise PlanError(
            "the best shares of unlike devices are found with SciPy, which is not installed; "
            "pip install 'headwater[samplers]', or ask for shares that are not exact"
        ) from error
    return linprog


def _fill(market: _Market, goal: Goal) -> KindShares:
    """Share greedily; the bound is that of the prices at which kinds are scarce."""
    return _fill_fairly(market) if goal is Goal.FAIREST else _fill_soon(market)


def _fill_soon(market: _Market) -> KindShares:
    """Hand out the most valuable pairs of contender and kind first."""
    gains = [[rate / one.work_left for rate in row] for one, row in zip(market.able, market.rates, strict=True)]
    pairs = [(-gain, row, kind) for row, line in enumerate(gains) for kind, gain in enumerate(line) if gain > 0]
    left, open_rows = [float(count) for count in market.counts], [one.most_devices for one in market.able]
    devices = [[0.0] * len(market.kinds) for _ in market.able]
    prices = [0.0] * len(market.kinds)
    for cost, row, kind in sorted(pairs):
        amount = min(left[kind], open_rows[row])
        if not left[kind] and open_rows[row]:
            prices[kind] = max(prices[kind], -cost)
        devices[row][kind] += amount
        left[kind] -= amount
        open_rows[row] -= amount
    profits = (max(gain - price for gain, price in zip(line, prices, strict=True)) for line in gains)
    bound = _dot(market.counts, prices) + math.fsum(
        one.most_devices * max(profit, 0.0) for one, profit in zip(market.able, profits, strict=True)
    )
    return market.conclude(Goal.SOONEST, devices, bound)


def _fill_fairly(market: _Market) -> KindShares:
    """Have who gets least take a part of a device more, each time of the kind that is cheapest for him."""
    prices, bound = _find_prices(market)
    left, open_rows = [float(count) for count in market.counts], [one.most_devices for one in market.able]
    devices = [[0.0] * len(market.kinds) for _ in market.able]
    part = max(sum(market.counts) / 4000, 0.05)
    agenda = [(0.0, row) for row in range(len(market.able))]
    heapify(agenda)
    while agenda:
        done, row = heappop(agenda)
        rates = market.rates[row]
        usable = [kind for kind, count in enumerate(left) if count > 1e-12 and rates[kind] > 0]
        if not usable or open_rows[row] <= 1e-12:
            continue
        kind = max(usable, key=lambda one: (rates[one] / prices[one], rates[one]))
        amount = min(part, left[kind], open_rows[row])
        devices[row][kind] += amount
        left[kind] -= amount
        open_rows[row] -= amount
        heappush(agenda, (done + amount * rates[kind] / market.equal[row], row))
    return market.conclude(Goal.FAIREST, devices, bound)


def _find_prices(market: _Market) -> tuple[list[float], float]:
    """Return prices of kinds, and how much everybody could get done at most, as a multiple of an equal share.

    Whatever the prices, all that there is costs no less than what everybody needs at its cheapest. Prices go up where
    more is asked for than there is.
    """
    prices = [1.0] * len(market.kinds)
    best = math.inf, prices
    for step in range(NUM_PRICES):
        asked = [0.0] * len(market.kinds)
        spent = 0.0
        for rates, equal in zip(market.rates, market.equal, strict=True):
            costs = [price / rate if rate > 0 else math.inf for price, rate in zip(prices, rates, strict=True)]
            kind = costs.index(min(costs))
            asked[kind] += equal / rates[kind]
            spent += equal * costs[kind]
        best = min(best, (_dot(market.counts, prices) / spent, prices))
        loads = [amount / count for amount, count in zip(asked, market.counts, strict=True)]
        pace = 1.0 / (1 + step) ** 0.5
        most = max(loads)
        prices = [price * math.exp(pace * (load / most - 1)) for price, load in zip(prices, loads, strict=True)]
    return best[1], best[0]


def _fold(values: Sequence[float], num_columns: int) -> list[list[float]]:
    return [[*values[start : start + num_columns]] for start in range(0, len(values), num_columns)]


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(one * other for one, other in zip(first, second, strict=True))


def _require_sense(contenders: Sequence[Contender], counts: Mapping[str, int]) -> None:
    for one in contenders:
        numbers = [one.most_devices, *one.rates.values()]
        if not all(0 <= number < math.inf for number in numbers) or not (one.weight > 0 and one.work_left > 0):
            raise PlanError(
                f"{one.key} has the rates {dict(one.rates)}, can use {one.most_devices} devices, weighs {one.weight} "
                f"and has {one.work_left} left; the first are numbers of at least 0, the last two above 0"
            )
    if any(count < 0 for count in counts.values()):
        raise PlanError(f"the devices are {dict(counts)}; there are at least 0 of a kind")
