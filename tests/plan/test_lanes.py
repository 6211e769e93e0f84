"""How many lanes a group should have, by what was measured."""

from __future__ import annotations

import pytest

from headwater.plan import (
    MAX_LANES,
    USUAL_LANES,
    choose_num_lanes,
    count_wanted,
    is_worth_trying,
    know_sizes,
    share_lanes,
)
from headwater.trials import Measurement


def measured(*seconds: float) -> list[Measurement]:
    return [Measurement(num_lanes=1 << place, seconds_per_lane_step=item) for place, item in enumerate(seconds)]


def test_the_fastest_size_is_taken_and_of_those_that_are_as_fast_the_smallest() -> None:
    assert choose_num_lanes(measured(1.0, 0.7, 0.5, 0.495))[0] == 4


def test_beside_others_smaller_groups_are_preferred() -> None:
    sizes = measured(1.0, 0.7, 0.57, 0.55, 0.5)
    assert choose_num_lanes(sizes)[0] == 16
    assert choose_num_lanes(sizes, num_workers=2)[0] == 4


def test_a_size_between_two_that_were_measured_costs_what_lies_between() -> None:
    sizes = [
        Measurement(num_lanes=1, seconds_per_lane_step=1.0, loading_s=0.2),
        Measurement(num_lanes=9, seconds_per_lane_step=1.0 / 3, peak_bytes=90, loading_s=0.4),
    ]
    alone, between = know_sizes(sizes, 5)
    assert alone is sizes[0]
    assert (between.num_lanes, between.peak_bytes) == (5, 90)
    assert (between.num_lanes * between.seconds_per_lane_step, between.loading_s) == pytest.approx((2.0, 0.3))
    assert know_sizes(sizes, 1) == sizes[:1]
    assert know_sizes(sizes, 9) == know_sizes(sizes, 20) == sizes
    assert know_sizes([], 4) == []


def test_a_group_that_gains_nothing_is_not_made() -> None:
    assert choose_num_lanes(measured(1.0, 0.99, 0.98))[0] == 1


@pytest.mark.parametrize(
    ("num_lanes", "size", "num_workers", "expected"),
    [(200, 64, 1, 64), (200, 64, 2, 50), (200, 128, 2, 100), (6, 64, 2, 3), (1, 64, 2, 1), (9, 2, 4, 2)],
)
def test_groups_are_shared_out_evenly(num_lanes: int, size: int, num_workers: int, expected: int) -> None:
    assert share_lanes(num_lanes, size, num_workers) == expected


def test_a_large_group_is_tried_where_each_size_was_clearly_faster_than_the_one_before() -> None:
    still = measured(*(0.8**place for place in range(8)))
    hardly = [*still[:-1], Measurement(num_lanes=USUAL_LANES, seconds_per_lane_step=0.95 * 0.8**6)]
    assert still[-1].num_lanes == USUAL_LANES
    assert is_worth_trying(2 * USUAL_LANES, still)
    assert not is_worth_trying(2 * USUAL_LANES, hardly)
    assert is_worth_trying(USUAL_LANES, hardly), "up to the usual, other rules hold"
    assert not is_worth_trying(2 * USUAL_LANES, still[-1:])


@pytest.mark.parametrize(
    ("num_lanes", "expected"), [(1, 1), (64, 64), (100, 100), (200, 128), (300, 256), (10**6, 512)]
)
def test_as_many_lanes_are_wanted_as_there_are_and_beyond_the_usual_whole_doublings(
    num_lanes: int, expected: int
) -> None:
    assert count_wanted(num_lanes) == expected <= MAX_LANES
