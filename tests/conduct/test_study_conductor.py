"""What is placed, and what becomes of it: a study is conducted by word, and nothing trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clocks import JumpingClock
from tests.conduct.lab import ConductedStudy, numbers_of

import headwater as hw
from headwater.conduct.endings import MOST_LOSSES
from headwater.conduct.limits import Limits
from headwater.errors import StudyError
from headwater.trials import (
    Deadline,
    Decision,
    Learnt,
    LoadingCost,
    Measured,
    Measurement,
    Noted,
    Order,
    Outcome,
    Placement,
    Profile,
    Purpose,
    Question,
    Recipe,
    Report,
    Reported,
    Segment,
    Started,
    Starting,
    Status,
    UnitCost,
)
from headwater.trials.recipes import Key


def test_every_idle_device_gets_a_group_until_there_is_none() -> None:
    study = ConductedStudy(num_trials=6)
    first = study.place()
    assert numbers_of(first) == [(0, 1), (2, 3)]
    assert [placement.devices for placement in first] == [("cpu:0",), ("cpu:1",)]
    assert first[0].key != first[1].key
    study.train(first[0])
    assert numbers_of(study.place("cpu:0")) == [(4, 5)]
    study.train(first[1])
    assert study.place("cpu:1") == []
    assert study.conductor.is_running
    assert not study.conductor.waiting.num_lanes


class TwoAtATime:
    """Proposes two trials, and two more when both have ended; counts how often it is asked."""

    def __init__(self) -> None:
        self.num_asked = 0
        self._num_proposed = 0
        self._num_ended = 0

    def propose(self, count: int) -> list[Segment]:
        self.num_asked += 1
        if self._num_proposed > self._num_ended or self._num_proposed == 4:
            return []
        self._num_proposed += 2
        numbers = range(self._num_proposed - 2, self._num_proposed)
        return [Segment(number=number, config={"lr": 10.0 ** (-number / 2)}) for number in numbers]

    def observe(self, report: Report) -> Decision:
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        self._num_ended += 1


def test_a_searcher_with_nothing_to_propose_is_asked_again_when_a_trial_has_ended() -> None:
    searcher = TwoAtATime()
    study = ConductedStudy(num_trials=4, search=searcher)
    (placement,) = study.place("cpu:0")
    assert study.place("cpu:1") == []
    num_asked = searcher.num_asked
    study.start(placement)
    for epoch in (1, 2, 3):
        study.report(placement, epoch, {0: 1.0, 1: 2.0})
        assert study.place("cpu:1") == []
    assert searcher.num_asked == num_asked
    study.end(placement, (0, 1))
    assert numbers_of(study.place()) == [(2,), (3,)]


def test_a_study_comes_to_its_end_with_every_trial_completed() -> None:
    study = ConductedStudy(num_trials=5)
    study.finish()
    assert study.statuses == [Status.COMPLETED] * 5
    assert [trial.epochs for trial in study.result.trials] == [3] * 5
    assert not study.conductor.is_running


def test_trials_of_rungs_pause_with_their_states_saved_and_go_on_from_them() -> None:
    study = ConductedStudy(num_trials=4, search="asha", max_epochs=9)
    first, second = study.place()
    study.start(first, 9)
    order = study.report(first, 1, {0: 0.0, 1: 1.0})
    assert order.leave == {0, 1}
    assert order.save == (0, 1)
    study.save(first, order.save, 1)
    study.end(first)
    study.start(second, 9)
    study.report(second, 1, {2: 2.0, 3: 3.0})
    study.save(second, (2, 3), 1)
    study.end(second)
    (promoted,) = study.place("cpu:0")
    (lane,) = promoted.groups[0].lanes
    assert (lane.number, lane.start_epoch, lane.until) == (0, 1, 3)


def test_a_trial_whose_state_is_still_being_saved_waits_for_it() -> None:
    study = ConductedStudy(num_trials=3, search="asha", max_epochs=9, lanes=1)
    placements = study.place("cpu:0", "cpu:1", "cpu:2")
    for placement, loss in zip(placements, (0.0, 1.0, 2.0), strict=True):
        study.start(placement, 9)
        study.report(placement, 1, {placement.groups[0].key: loss})
    for placement in placements[1:]:
        study.save(placement, placement.groups[0].numbers, 1)
        study.end(placement)
    assert study.place("cpu:1", "cpu:2") == []
    study.save(placements[0], (0,), 1)
    assert numbers_of(study.place("cpu:1", "cpu:2")) == [(0,)]


def test_the_best_trial_that_has_ended_is_kept() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement, 2)
    assert study.report(placement, 1, {0: 0.1, 1: 0.2}).keep == ()
    assert study.report(placement, 2, {0: 0.4, 1: 0.3}).keep == (1,)


def test_a_report_without_the_metric_ends_the_study_or_fails_its_trial() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    reports = tuple(Report(number=number, epoch=1, metrics={"accuracy": 1.0}) for number in (0, 1))
    event = Reported(key=placement.key, group=0, reports=reports, num_steps=1, seconds=0.0)
    with pytest.raises(StudyError, match="'accuracy'"):
        study.conductor.hear(event)
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    study.report(placement, 1, {0: 0.5, 1: 0.5})
    reports = tuple(Report(number=number, epoch=2, metrics={"accuracy": 1.0}) for number in (0, 1))
    order = study.conductor.hear(Reported(key=placement.key, group=0, reports=reports, num_steps=2, seconds=0.0))
    assert order is not None
    assert order.leave == {0, 1}
    assert study.statuses[:2] == [Status.FAILED] * 2


def test_a_diverging_trial_leaves_and_the_others_go_on() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    assert study.report(placement, 1, {0: float("nan"), 1: 0.5}).leave == {0}
    study.report(placement, 2, {1: 0.4})
    study.end(placement, [1])
    assert study.statuses[:2] == [Status.STOPPED, Status.COMPLETED]


def test_a_group_that_raises_is_cut_in_halves_until_one_trial_fails() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    study.end(placement, [0, 1], Outcome.RAISED, error="Traceback\nValueError: no")
    halves = study.place()
    assert numbers_of(halves) == [(0,), (1,)]
    study.start(halves[0])
    study.end(halves[0], [0], Outcome.RAISED, error="Traceback\nValueError: no")
    study.train(halves[1])
    assert study.statuses[:2] == [Status.FAILED, Status.COMPLETED]
    assert study.result.trials[0].error == "Traceback\nValueError: no"


def test_lanes_part_by_what_the_code_asks_and_that_is_recorded() -> None:
    space = {"width": hw.grid([4, 8]), "lr": hw.loguniform(1e-3, 1.0)}
    study = ConductedStudy(num_trials=4, space=space, lanes=4)
    placements = study.place()
    question = Question(Recipe("width", Key(("width",))), "a layer has this size")
    for placement in placements:
        study.start(placement)
        study.end(placement, placement.groups[0].numbers, Outcome.PARTED, question=question)
    widths = [{lane.config["width"] for lane in group.lanes} for one in study.place() for group in one.groups]
    assert all(len(found) == 1 for found in widths)
    recorder = study.opened._setup.recorder
    text = recorder.store.fact(recorder.info.id, "learnt: cpu")
    assert isinstance(text, str)
    assert [recipe.label for recipe in Learnt.from_json(text).recipes] == ["width"]


def test_a_trial_that_is_lost_goes_on_from_its_last_state(tmp_path: Path) -> None:
    study = ConductedStudy(num_trials=1, lanes=1, storage=tmp_path / "s.db", save_every=2)
    (placement,) = study.place("cpu:0")
    study.start(placement, 4)
    assert study.report(placement, 1, {0: 0.5}).save == ()
    assert study.report(placement, 2, {0: 0.4}).save == (0,)
    study.save(placement, [0], 2)
    study.report(placement, 3, {0: 0.3})
    study.lose(placement)
    (again,) = study.place("cpu:0")
    assert again.groups[0].lanes[0].start_epoch == 2
    assert again.key != placement.key
    study.train(again, 4)
    assert [report.epoch for report in study.result.trials[0].history] == [1, 2, 3, 4]
    assert study.result.trials[0].history[2].metrics["loss"] == 0.3  # it came by that epoch once more
    assert "trains again from what was saved: it is gone" in study.notes


def test_a_trial_that_is_lost_too_often_has_failed() -> None:
    study = ConductedStudy(num_trials=1, lanes=1)
    for _ in range(MOST_LOSSES):
        (placement,) = study.place("cpu:0")
        study.lose(placement, "the node is on fire")
    assert study.place() == []
    assert study.statuses == [Status.FAILED]
    assert study.result.trials[0].error == "the node is on fire"


def test_a_group_that_is_lost_trains_again_and_in_halves_where_it_is_lost_at_the_same_place() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.lose(placement)
    (again,) = study.place("cpu:0")
    assert again.groups == placement.groups
    study.lose(again)
    assert numbers_of(study.place()) == [(0,), (1,)]


def test_what_is_lost_after_its_last_report_has_done_its_work() -> None:
    study = ConductedStudy(search="asha", max_epochs=9)
    (placement,) = study.place("cpu:0")
    study.start(placement, 9)
    order = study.report(placement, 1, {0: 0.5, 1: 0.6})
    study.save(placement, order.save, 1)
    study.lose(placement)
    assert not study.conductor.is_running
    assert study.statuses[:2] == [Status.PAUSED] * 2


def test_what_is_lost_after_its_end_is_not_missed() -> None:
    study = ConductedStudy(lanes=1)
    (placement,) = study.place("cpu:0")
    assert study.conductor.devices == {"cpu:0"}
    study.train(placement)
    study.lose(placement)
    assert study.conductor.devices == frozenset()
    study.finish()
    assert study.statuses == [Status.COMPLETED] * 4


def place_pack(study: ConductedStudy) -> Placement:
    """Have trials placed that train one by one, but load their data together."""
    (measuring,) = study.place("cpu:0")
    assert measuring.purpose is Purpose.LOADING
    cost = LoadingCost(unit=UnitCost(compute_s=0.1, load_s=1.0))
    study.conductor.hear(Measured(key=measuring.key, finding=cost))
    (pack,) = study.place("cpu:0")
    assert numbers_of([pack]) == [(0,), (1,), (2,)]
    return pack


def test_of_a_pack_that_is_lost_each_group_trains_alone() -> None:
    study = ConductedStudy(num_trials=3, lanes=1, packing="cost", limits=Limits(num_trials=3))
    pack = place_pack(study)
    study.start(pack)
    study.lose(pack)
    assert [len(placement.groups) for placement in study.finish()] == [1, 1, 1]
    assert study.statuses == [Status.COMPLETED] * 3


def test_the_number_of_lanes_is_measured_first_where_none_is_given() -> None:
    study = ConductedStudy(num_trials=4, lanes="auto")
    measuring = study.place()
    assert [placement.purpose for placement in measuring] == [Purpose.PROFILE]
    measurements = tuple(Measurement(num_lanes=size, seconds_per_lane_step=1.0 / size) for size in (1, 2))
    profile = Profile(num_lanes=2, reason="measured", measurements=measurements)
    study.conductor.hear(Measured(key=measuring[0].key, finding=profile))
    assert numbers_of(study.place()) == [(0, 1), (2, 3)]


def test_where_measuring_is_lost_trials_train_one_by_one() -> None:
    study = ConductedStudy(num_trials=4, lanes="auto")
    (measuring,) = study.place()
    study.lose(measuring)
    assert {len(numbers) for numbers in numbers_of(study.finish())} == {1}
    assert study.statuses == [Status.COMPLETED] * 4


def test_when_somebody_asks_to_stop_all_leave_at_their_next_reports_saved() -> None:
    study = ConductedStudy(num_trials=6)
    first, second = study.place()
    study.start(first)
    study.start(second)
    study.conductor.end.stop_reason = "interrupted"
    for placement, numbers in ((first, (0, 1)), (second, (2, 3))):
        order = study.report(placement, 1, dict.fromkeys(numbers, 0.5))
        assert order.leave == set(numbers)
        assert order.save == numbers
        study.save(placement, numbers, 1)
        study.end(placement)
    assert study.place() == []
    assert study.conductor.ended_early == "interrupted"
    assert study.result.was_interrupted


def test_no_group_begins_when_the_time_is_over_but_the_first() -> None:
    clock = JumpingClock()
    limits = Limits(num_trials=4, deadline=Deadline.start(5.0, clock))
    study = ConductedStudy(limits=limits)
    clock.jump(6.0)
    (placement,) = study.place()
    assert placement.seconds_left == -1.0
    study.train(placement)
    assert study.conductor.ended_early == "the time budget of 5 s is used up"


@pytest.mark.parametrize(("seconds", "has_room"), [(4.0, True), (6.0, False)])
def test_who_comes_to_start_after_the_deadline_need_not_begin(seconds: float, has_room: bool) -> None:
    """A worker process takes its time to be there."""
    clock = JumpingClock()
    study = ConductedStudy(limits=Limits(num_trials=4, deadline=Deadline.start(5.0, clock)))
    first, second = study.place()
    study.start(first)
    study.report(first, 1, {0: 0.5, 1: 0.6})
    clock.jump(seconds)
    order = study.conductor.hear(Started(key=second.key, group=second.groups[0].key))
    assert order == (None if has_room else Order(leave=frozenset({2, 3})))
    assert (study.conductor.ended_early is None) == has_room


def test_what_is_to_be_regrouped_leaves_saved_and_is_placed_anew() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    study.conductor.regroup()
    order = study.report(placement, 1, {0: 0.5, 1: 0.6})
    assert order.leave == {0, 1}
    study.save(placement, order.save, 1)
    study.end(placement)
    placed = study.finish()
    lanes = [lane for placement in placed for group in placement.groups for lane in group.lanes]
    assert {lane.number: lane.start_epoch for lane in lanes} == {0: 1, 1: 1, 2: 0, 3: 0}
    assert study.statuses == [Status.COMPLETED] * 4


def test_a_remark_from_where_it_trains_is_in_the_record() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.conductor.hear(Noted(key=placement.key, text="compiled"))
    assert study.notes == ["compiled"]


def test_a_lone_trial_that_runs_out_of_memory_fails_and_a_group_is_halved() -> None:
    study = ConductedStudy()
    (placement,) = study.place("cpu:0")
    study.start(placement)
    study.end(placement, [0, 1], Outcome.OUT_OF_MEMORY, error="MemoryError")
    halves = study.place()
    assert numbers_of(halves) == [(0,), (1,)]
    study.start(halves[0])
    study.end(halves[0], [0], Outcome.OUT_OF_MEMORY, error="MemoryError")
    study.train(halves[1])
    assert study.statuses[:2] == [Status.FAILED, Status.COMPLETED]


def test_of_a_pack_that_starts_at_the_deadline_only_those_train_that_have_begun() -> None:
    clock = JumpingClock()
    limits = Limits(num_trials=3, deadline=Deadline.start(10.0, clock))
    study = ConductedStudy(lanes=1, packing="cost", limits=limits)
    pack = place_pack(study)
    orders = []
    for group in pack.groups:
        clock.jump(6.0)
        orders.append(study.conductor.hear(Started(key=pack.key, group=group.key)))
    assert [order is None for order in orders] == [True, False, False]
    assert [sorted(order.leave) for order in orders if order is not None] == [[1], [2]]


def call_off(study: ConductedStudy, placement: Placement) -> frozenset[int] | None:
    order = study.conductor.hear(Starting(key=placement.key))
    return None if order is None else order.leave


def test_what_is_not_ready_at_the_deadline_is_called_off_but_for_one_that_comes_to_a_report() -> None:
    clock = JumpingClock()
    study = ConductedStudy(limits=Limits(num_trials=4, deadline=Deadline.start(10.0, clock)))
    first, second = study.place()
    assert call_off(study, first) is call_off(study, second) is None
    clock.jump(10.0)
    assert call_off(study, first) == frozenset({0, 1})
    assert call_off(study, second) is None
    assert not study.place()
    study.start(second)
    assert study.report(second, 1, {2: 0.5, 3: 0.6}).leave == {2, 3}
    assert study.conductor.ended_early == "the time budget of 10 s is used up"


def test_what_would_come_to_its_report_after_the_deadline_is_called_off() -> None:
    clock = JumpingClock()
    study = ConductedStudy(limits=Limits(num_trials=4, deadline=Deadline.start(10.0, clock)))
    first, second = study.place()
    study.start(first)
    clock.jump(6.0)
    study.report(first, 1, {0: 0.5, 1: 0.6})
    assert call_off(study, second) == frozenset({2, 3})
    assert study.conductor.devices == {"cpu:0"}


def test_measuring_that_is_not_ready_at_the_deadline_is_called_off() -> None:
    clock = JumpingClock()
    limits = Limits(num_trials=4, deadline=Deadline.start(10.0, clock))
    study = ConductedStudy(lanes=1, packing="cost", limits=limits)
    measuring, training = study.place()
    assert (measuring.purpose, training.purpose) == (Purpose.LOADING, Purpose.TRAIN)
    clock.jump(10.0)
    assert call_off(study, training) is None
    assert call_off(study, measuring) == frozenset({0})


def test_where_the_time_is_over_before_anything_trains_one_group_trains_and_nothing_is_measured() -> None:
    clock = JumpingClock()
    limits = Limits(num_trials=4, deadline=Deadline.start(10.0, clock))
    study = ConductedStudy(lanes=1, packing="cost", limits=limits)
    clock.jump(10.0)
    assert [(placement.purpose, len(placement.groups)) for placement in study.place()] == [(Purpose.TRAIN, 1)]


def test_a_device_that_is_offered_while_a_group_trains_there_is_not_handed_out_again() -> None:
    study = ConductedStudy(lanes=2)
    study.place("cpu:0")
    with pytest.raises(AssertionError, match=r"cpu:0 was handed out to .* while a group still trains there"):
        study.place("cpu:0")
