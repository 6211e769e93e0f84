"""Slow work waits for its turn."""

from __future__ import annotations

from headwater.report.pacing import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_quick_work_is_due_again_after_the_least_wait() -> None:
    clock = Clock()
    pace = Pace(5.0, clock)
    assert not pace.is_due
    clock.now = 5.0
    assert pace.is_due
    with pace.measured():
        clock.now += 0.01
    clock.now += 4.9
    assert not pace.is_due
    clock.now += 0.2
    assert pace.is_due


def test_slow_work_takes_a_small_share_of_the_time() -> None:
    clock = Clock()
    pace = Pace(5.0, clock)
    with pace.measured():
        clock.now += 10.0
    clock.now += 199.0
    assert not pace.is_due
    clock.now += 2.0
    assert pace.is_due
