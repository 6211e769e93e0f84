"""Lanes that leave, pause and go on: whatever happens to a group, each trial's numbers are those of a run alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.train.lab import Decide, Notebook, require_equal_states, run, run_alone, run_done
from tests.train.workout import CONFIGS, NUM_EPOCHS, OPTIMIZERS, SCHEDULES, workout

from headwater.train.engines import LaneState
from headwater.trials import Decision, Outcome, Report

CLOSE = 1e-12

with_every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
with_every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def leave(at: Mapping[int, int], decision: Decision = Decision.STOP) -> Decide:
    """Return a rule by which each of these trials leaves at its epoch."""
    return lambda report: decision if at.get(report.number) == report.epoch else Decision.CONTINUE


def pick(*numbers: int) -> dict[int, dict[str, float]]:
    return {number: CONFIGS[number] for number in numbers}


def require_as_alone(notes: Notebook, alone: Notebook, number: int, first_epoch: int = 1) -> None:
    """Fail unless the trial reported, and learnt, what it does alone."""
    assert notes.epochs(number) == list(range(first_epoch, alone.epochs(number)[-1] + 1))
    for metric in ("loss", "lr"):
        expected = alone.history(number, metric)[first_epoch - 1 :]
        assert notes.history(number, metric) == pytest.approx(expected, rel=CLOSE, abs=CLOSE)
    require_equal_states(notes.states[number], alone.states[number], CLOSE)


@with_every_schedule
@with_every_optimizer
def test_lanes_that_stay_train_as_alone_while_others_leave(optimizer: str, schedule: str) -> None:
    train = workout(optimizer, schedule)
    done = run(train, pick(0, 1, 2, 3, 4), decide=leave({1: 1, 4: 2, 0: 3}))
    assert done.outcome is Outcome.DONE
    assert [lane.number for lane in done.ending.lanes] == [2, 3]
    for number in (2, 3):
        require_as_alone(done.notes, run_alone(train, CONFIGS[number], number), number)


def test_reports_and_steps_are_for_the_lanes_that_are_left() -> None:
    done = run(workout(), pick(0, 1, 2), decide=leave({1: 2, 0: 4}))
    assert [done.notes.epochs(number) for number in range(3)] == [[1, 2, 3, 4], [1, 2], [1, 2, 3, 4, 5]]
    assert done.notes.num_lanes_by_step == [3] * 6 + [2] * 6 + [1] * 3
    assert done.ending.num_lane_steps == 33


def test_a_lane_that_leaves_is_captured_as_it_was_at_that_report() -> None:
    train = workout("adamw", "plateau")
    group = run_done(train, pick(0, 1, 2), decide=leave({1: 2}))
    alone = run_done(train, {1: CONFIGS[1]}, decide=leave({1: 2}), always_fuse=False)
    require_equal_states(group.states[1], alone.states[1], CLOSE)
    assert group.states[1].epoch == 2


def test_the_function_ends_when_no_lane_is_left() -> None:
    reached = []

    def train(trial: object) -> None:
        workout()(trial)  # type: ignore[arg-type]
        reached.append(True)

    done = run(train, pick(0, 1), decide=leave({0: 1, 1: 3}))
    assert done.outcome is Outcome.DONE
    assert done.ending.lanes == ()
    assert not reached
    assert len(done.notes.num_lanes_by_step) == 9


@pytest.mark.parametrize("pause_at", [1, 3])
@with_every_schedule
@with_every_optimizer
def test_a_paused_lane_goes_on_alone_as_if_it_had_never_paused(optimizer: str, schedule: str, pause_at: int) -> None:
    train = workout(optimizer, schedule)
    state = pause(train, (0, 1, 2), pause_at)[1]
    resumed = run_done(train, pick(1), states=[state], always_fuse=False)
    require_as_alone(resumed, run_alone(train, CONFIGS[1], 1), 1, first_epoch=pause_at + 1)


@with_every_schedule
@with_every_optimizer
def test_paused_lanes_go_on_in_another_group_as_if_they_had_never_paused(optimizer: str, schedule: str) -> None:
    train = workout(optimizer, schedule)
    states = pause(train, (0, 1, 2), 2) | pause(train, (3, 4), 2)
    numbers = (4, 1, 3)
    resumed = run_done(train, pick(*numbers), states=[states[number] for number in numbers])
    for number in numbers:
        require_as_alone(resumed, run_alone(train, CONFIGS[number], number), number, first_epoch=3)


def test_a_lane_that_paused_alone_goes_on_in_a_group() -> None:
    train = workout("adamw", "one-cycle")
    states = pause(train, (2,), 3, always_fuse=False) | pause(train, (3, 4), 3)
    resumed = run_done(train, pick(2, 4), states=[states[2], states[4]])
    for number in (2, 4):
        require_as_alone(resumed, run_alone(train, CONFIGS[number], number), number, first_epoch=4)


def test_a_trial_may_pause_again_and_again() -> None:
    train = workout("sgd", "plateau")
    state = pause(train, (0, 1, 2), 1)[1]
    for epoch in range(2, NUM_EPOCHS + 1):
        notes = run_done(train, pick(1), decide=leave({1: epoch}, Decision.PAUSE), states=[state])
        state = notes.states[1]
        assert notes.epochs(1) == [epoch]
    require_equal_states(state, run_alone(train, CONFIGS[1], 1).states[1], CLOSE)


def test_lanes_with_different_optimizers_leave_pause_and_go_on() -> None:
    names = ("SGD", "AdamW", "SGD", "Adagrad", "NAdam")
    configs = {number: {**CONFIGS[number], "optimizer": name} for number, name in enumerate(names)}
    train = workout("mixed")
    first = run_done(train, configs, decide=leave({0: 2, 1: 2, 3: 2}, Decision.PAUSE))
    paused = {number: configs[number] for number in (1, 3, 0)}
    second = run_done(train, paused, states=[first.states[number] for number in paused])
    for number in range(5):
        alone = run_alone(train, configs[number], number)
        stayed = number in (2, 4)
        require_as_alone(first if stayed else second, alone, number, first_epoch=1 if stayed else 3)


def pause(
    train: Callable[..., None], numbers: tuple[int, ...], epoch: int, always_fuse: bool = True
) -> dict[int, LaneState]:
    """Train these trials as one group until they all pause."""

    def decide(report: Report) -> Decision:
        return Decision.PAUSE if report.epoch == epoch else Decision.CONTINUE

    return run_done(train, pick(*numbers), decide=decide, always_fuse=always_fuse).states
