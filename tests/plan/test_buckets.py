"""Devices go to the kinds of trials that would hold up the rest, not to those with large batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from random import Random

from headwater.plan.buckets import Bucket, choose_cuts, predict_end, share_devices


def make_bucket(num_lanes: int, seconds: Callable[[int], float], most_lanes: int = 157) -> Bucket:
    return Bucket(num_lanes=num_lanes, most_lanes=most_lanes, seconds=seconds)


SLOW = make_bucket(8, lambda num_lanes: 773 / 8 * num_lanes)
"""The paper's example: eight trials of 50 epochs with batches of 128, were their time in proportion to lanes."""
FAST = make_bucket(8, lambda num_lanes: 370 / 8 * num_lanes)
"""With batches of 512."""


def draw_bucket(rng: Random) -> Bucket:
    """Return one whose groups take longer the more lanes they have, but each lane less."""
    first_s, lane_s = rng.uniform(1, 20), rng.uniform(0.1, 5)
    return make_bucket(rng.randint(1, 9), lambda num_lanes: first_s + lane_s * num_lanes, rng.randint(1, 4))


def test_most_devices_go_to_those_who_need_most() -> None:
    assert share_devices([SLOW, FAST], 10) == [8, 2]
    assert max(SLOW.find_end(8), FAST.find_end(2)) == 370 / 2


def test_no_other_shares_of_the_devices_end_earlier() -> None:
    rng = Random(0)
    for _ in range(100):
        buckets = [draw_bucket(rng) for _ in range(rng.randint(1, 3))]
        num_devices = rng.randint(len(buckets), 7)
        ends = [
            max(bucket.find_end(count) for bucket, count in zip(buckets, counts, strict=True))
            for counts in product(range(1, num_devices + 1), repeat=len(buckets))
            if sum(counts) <= num_devices
        ]
        shares = share_devices(buckets, num_devices)
        assert sum(shares) <= num_devices
        assert max(bucket.find_end(count) for bucket, count in zip(buckets, shares, strict=True)) == min(ends)


def test_a_bucket_gets_no_more_devices_than_it_has_lanes() -> None:
    assert share_devices([make_bucket(1, lambda num_lanes: 90.0), make_bucket(4, float)], 9) == [1, 4]


def test_with_fewer_devices_than_buckets_each_is_cut_for_one() -> None:
    assert share_devices([SLOW, FAST, FAST], 2) == [1, 1, 1]


def test_groups_are_no_larger_than_they_may_be() -> None:
    bucket = make_bucket(300, float)
    assert bucket.time_groups(1) == [157.0, 143.0]
    assert bucket.time_groups(2) == [150.0, 150.0]


def test_kinds_train_side_by_side_where_large_groups_pay() -> None:
    buckets = [make_bucket(8, lambda num_lanes: 10.0 + num_lanes) for _ in range(2)]
    assert choose_cuts(buckets, 2) == [1, 1]
    assert predict_end(buckets, [1, 1], 2) == 18.0
    assert predict_end(buckets, [2, 2], 2) == 28.0


def test_kinds_follow_one_another_where_one_would_leave_devices_idle() -> None:
    buckets = [make_bucket(8, lambda num_lanes: 10.0 * num_lanes), make_bucket(8, float)]
    assert choose_cuts(buckets, 2) == [2, 2]
    assert predict_end(buckets, [2, 2], 2) == 44.0
    assert predict_end(buckets, [1, 1], 2) == 80.0


def test_where_nobody_can_tell_each_kind_is_cut_for_all_devices() -> None:
    assert choose_cuts([make_bucket(8, lambda num_lanes: 10.0 + num_lanes), make_bucket(8, lambda _: math.inf)], 2) == [
        2,
        2,
    ]
    assert choose_cuts([SLOW], 4) == [4]
