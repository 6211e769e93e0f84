"""Which lanes fit into the memory that pipelines leave."""

from __future__ import annotations

import math

from headwater.plan.bubbles import GIB, explain_refusal, fit_lanes
from headwater.trials import Measurement


def measure(num_lanes: int, peak_bytes: int | None) -> Measurement:
    return Measurement(num_lanes=num_lanes, seconds_per_lane_step=1.0, peak_bytes=peak_bytes)


def test_two_points_tell_how_many_lanes_fit() -> None:
    assert fit_lanes([measure(1, 2000), measure(2, 2500)], 80_000) == 157
    assert fit_lanes([measure(1, 2000), measure(8, 5500)], 80_000) == 157
    assert fit_lanes([measure(1, 2000)], 7000) == 3
    assert fit_lanes([measure(1, 2000), measure(2, 2500)], 1999) == 0


def test_lanes_of_which_nothing_is_known_are_let_in() -> None:
    assert fit_lanes([], 80) == math.inf
    assert fit_lanes([measure(1, None)], 80) == math.inf
    assert fit_lanes([measure(1, 2000)], None) == math.inf


def test_memory_that_does_not_grow_with_lanes_counts_as_much_for_each() -> None:
    assert fit_lanes([measure(1, 2000), measure(2, 1900)], 7000) == 3


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    text = explain_refusal(3 * GIB, [GIB, 2 * GIB])
    assert "needs 3.00 GiB" in text
    assert "leave 2.00 GiB" in text
    assert "\n" not in text
