"""When a run ends, and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.clocks import JumpingClock

from headwater.conduct.limits import Limits
from headwater.conduct.run_end import RunEnd
from headwater.conduct.run_progress import RunProgress
from headwater.conduct.running import RunningGroup
from headwater.store import StudyInfo
from headwater.trials import Deadline, Lane, Report, TrialGroup

INFO = StudyInfo(name="study", metric="loss", mode="min", seed=0, settings={"search": "random", "num_seeds": 1})


class Run:
    """A run with an end, a clock, a progress and a group."""

    def __init__(
        self,
        seconds: float | None = None,
        target: float | None = None,
        reserve: Callable[[float], float] | None = None,
    ) -> None:
        self.clock = JumpingClock()
        self.progress = RunProgress(INFO, 4)
        limits = Limits(deadline=Deadline.start(seconds, self.clock), target=target, reserve=reserve)
        self.end = RunEnd(limits, self.progress, None)
        self.group = RunningGroup.start(make_group())

    def report_after(self, seconds: float, num_lanes: int = 1) -> None:
        """Have the group report an epoch that took so long."""
        self.group.since_s = self.clock()
        self.clock.jump(seconds)
        self.group.time_epoch(self.clock())
        self.end.see_epoch(num_lanes, self.group.epoch_s)


def make_group(num_lanes: int = 1) -> TrialGroup:
    return TrialGroup(lanes=tuple(Lane(number=number, config={}, seed=0) for number in range(num_lanes)))


def test_without_limits_a_run_ends_only_when_somebody_asks() -> None:
    run = Run()
    run.end.listen()
    assert run.end.find() is None
    run.end.stop_reason = "interrupted"
    assert run.end.find() == run.end.find_before([make_group()]) == "interrupted"


def test_a_group_goes_on_to_its_next_report_and_ends_when_the_time_is_over() -> None:
    run = Run(seconds=10)
    run.report_after(9.5)
    assert run.end.find(run.group) is None
    run.clock.jump(0.5)
    assert run.end.find(run.group) == "the time budget of 10 s is used up"


def test_no_group_begins_that_would_report_too_late() -> None:
    run = Run(seconds=10)
    assert run.end.find_before([make_group()]) is None
    run.report_after(4.0)
    assert run.end.find_before([make_group()]) is None
    assert run.end.find_before([make_group(), make_group(2)]) == (
        "the time budget of 10 s has no room for another group, whose epochs take about 8.0 s"
    )


def test_where_time_is_kept_for_what_follows_a_group_ends_before_it_would_take_of_that() -> None:
    run = Run(seconds=10, reserve=lambda num_steps: 5.0)
    run.report_after(2.0)
    assert run.end.find(run.group) is None
    run.report_after(2.0)
    assert run.end.find() is None
    assert run.end.find(run.group) == "the time budget of 10 s is used up but for the 5 s that the target needs"


def test_a_target_that_is_reached_ends_the_run() -> None:
    run = Run(target=0.5)
    run.progress.see([Report(number=3, epoch=1, metrics={"loss": 0.6})])
    assert run.end.find() is None
    run.progress.see([Report(number=3, epoch=2, metrics={"loss": 0.4})])
    assert run.end.find() == "trial 3 reached the target of 0.5"


def test_epochs_of_larger_groups_are_foreseen_to_take_longer_and_of_smaller_ones_as_long() -> None:
    run = Run()
    assert not run.end.knows_epochs
    assert run.end.foresee_epoch(8) == 0.0
    run.report_after(2.0, num_lanes=4)
    run.report_after(3.0, num_lanes=4)
    assert run.end.knows_epochs
    assert [run.end.foresee_epoch(num_lanes) for num_lanes in (1, 4, 8)] == pytest.approx([2.0, 2.0, 4.0])
