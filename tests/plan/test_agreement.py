"""Rank agreement against SciPy, and its interval."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import spearmanr

from headwater.plan import correlate_ranks, measure_trust, order_by_merit, spread_over
from headwater.trials import Report, Status, TrialRecord


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [0, 6])
def test_the_correlation_is_that_of_scipy(seed: int, digits: int) -> None:
    rng = random.Random(seed)
    first = [round(rng.uniform(0, 5), digits) for _ in range(9)]
    second = [round(value + rng.gauss(0, 1), digits) for value in first]
    assert correlate_ranks(first, second) == pytest.approx(float(spearmanr(first, second).statistic))


def test_without_an_order_there_is_no_agreement() -> None:
    assert correlate_ranks([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0


def test_values_that_are_not_finite_rank_last() -> None:
    assert correlate_ranks([1.0, 2.0, math.nan], [1.0, 2.0, math.inf]) == pytest.approx(1.0)


def test_the_interval_holds_the_agreement_and_narrows_with_more_configurations() -> None:
    rng = random.Random(0)
    pairs = [(x, x + rng.gauss(0, 0.4)) for x in (rng.random() * 3 for _ in range(60))]
    few, many = measure_trust(8, 4, pairs[:8]), measure_trust(8, 4, pairs)
    assert few.low <= few.agreement <= few.high
    assert many.high - many.low < few.high - few.low


def test_a_perfect_agreement_of_few_is_not_certain() -> None:
    trust = measure_trust(8, 4, [(float(n), float(n)) for n in range(6)])
    assert trust.agreement == pytest.approx(1.0)
    assert trust.low < 0.7
    assert trust.high == 1.0


@pytest.mark.parametrize(("count", "num_items"), [(1, 9), (2, 9), (6, 200), (6, 6), (6, 3), (3, 4)])
def test_places_are_spread_from_best_to_worst(count: int, num_items: int) -> None:
    places = spread_over(count, num_items)
    assert len(set(places)) == len(places) == min(count, num_items)
    assert places[0] == 0
    assert count == 1 or places[-1] == num_items - 1


def test_who_came_further_in_a_search_is_better_and_who_came_to_the_end_by_value() -> None:
    def trial(number: int, status: Status, epochs: int) -> TrialRecord:
        history = (Report(number=number, epoch=epochs, metrics={"loss": float(number)}),)
        return TrialRecord(number=number, config={}, status=status, history=history)

    ranked = [
        trial(0, Status.STOPPED, 1),
        trial(1, Status.COMPLETED, 5),
        trial(2, Status.STOPPED, 3),
        trial(3, Status.COMPLETED, 9),
        trial(4, Status.PAUSED, 3),
    ]
    assert [one.number for one in order_by_merit(ranked)] == [1, 3, 2, 4, 0]
