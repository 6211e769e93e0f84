"""The best of the trials that have ended, whatever comes in between."""

from __future__ import annotations

import math

from headwater.report.podium import Podium


def test_only_a_better_trial_takes_the_place() -> None:
    podium = Podium("min", "loss")
    assert podium.climb({3: 0.5, 4: 0.4}) == 4
    assert podium.climb({5: 0.4}) is None
    assert podium.climb({6: 0.3}) == 6


def test_in_mode_max_the_largest_wins() -> None:
    podium = Podium("max", "accuracy")
    assert podium.climb({0: 0.5, 1: 0.7}) == 1
    assert podium.climb({2: 0.6}) is None


def test_nothing_that_is_not_finite_wins() -> None:
    podium = Podium("min", "loss")
    assert podium.climb({0: math.nan, 1: math.inf}) is None
    assert podium.climb({}) is None
    assert not podium.climb_last(0)


def test_a_paused_trial_that_is_dropped_may_win_by_its_last_value() -> None:
    podium = Podium("min", "loss")
    podium.see(1, 0.2)
    assert podium.climb({0: 0.5}) == 0
    assert podium.climb_last(1)
    assert not podium.climb_last(1)
