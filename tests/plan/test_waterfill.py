"""Shares of devices: the paper's example, and what holds for any trials."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from headwater.errors import PlanError
from headwater.plan.waterfill import share_statically

TOY = (4.0, 4.0, 12.0, 30.0)


@pytest.mark.parametrize("rest", [True, False])
def test_the_papers_example_gets_its_shares(rest: bool) -> None:
    shares = share_statically(TOY, num_devices=5, max_sharing=2, max_devices=3, hands_out_rest=rest)
    assert shares == [0.5, 0.5, 1, 3]


def test_shares_come_in_the_order_of_the_trials() -> None:
    assert share_statically([30, 4, 12, 4], num_devices=5, max_sharing=2, max_devices=5) == [3, 0.5, 1, 0.5]


def test_what_rounding_leaves_over_goes_where_it_saves_most() -> None:
    share = partial(share_statically, [8, 18], num_devices=5, max_sharing=2, max_devices=5)
    assert share(hands_out_rest=False) == [1, 3]
    assert share() == [2, 3]


def test_equals_get_equal_shares_and_no_more_than_there_is() -> None:
    rng = Random(2)
    for _ in range(300):
        seconds = [float(rng.randint(1, 6)) for _ in range(rng.randint(1, 12))]
        num_devices, max_devices = rng.randint(1, 20), rng.randint(1, 6)
        shares = share_statically(seconds, num_devices=num_devices, max_sharing=3, max_devices=max_devices)
        by_time = {(time, share) for time, share in zip(seconds, shares, strict=True)}
        assert len(by_time) == len(set(seconds))
        assert sum(share for share in shares if share >= 1) <= num_devices
        assert all(1 / 3 <= share <= max_devices for share in shares)


def test_a_higher_priority_gets_more() -> None:
    shares = share_statically([10, 10], num_devices=6, max_sharing=2, max_devices=6, priorities=[1, 2])
    assert shares == [2, 4]


def test_nothing_to_share_is_no_error() -> None:
    assert share_statically([], num_devices=5, max_sharing=2, max_devices=3) == []
    assert share_statically([0, 0], num_devices=5, max_sharing=2, max_devices=3) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        ([1.0, -1.0], {}),
        ([float("nan")], {}),
        ([1.0], {"num_devices": 0}),
        ([1.0], {"max_sharing": 0}),
        ([1.0], {"max_devices": 0}),
        ([1.0], {"priorities": [1.0, 2.0]}),
    ],
)
def test_numbers_that_make_no_sense_are_refused(seconds: list[float], options: dict[str, int]) -> None:
    with pytest.raises(PlanError):
        share_statically(seconds, **{"num_devices": 2, "max_sharing": 2, "max_devices": 2, **options})  # type: ignore[arg-type]
