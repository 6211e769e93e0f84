"""What each of several studies hears of a group that they share, and what becomes of what they order."""

from __future__ import annotations

from headwater.conduct.joint_events import join_orders, rename_lanes, split_event
from headwater.trials import (
    Ended,
    Ending,
    Lane,
    Lost,
    Order,
    Outcome,
    Placement,
    Question,
    Report,
    Reported,
    Saved,
    Stepped,
    TrialGroup,
)
from headwater.trials.joint_numbers import join_number

LANES = tuple(Lane(number=number, config={"lr": 0.1}, seed=0) for number in (4, 5))
MINE = Placement(key=9, study="mine", groups=(TrialGroup(lanes=LANES),), devices=("cpu:0",))
FOUR, FIVE = join_number(1, 4), join_number(1, 5)


def report(number: int) -> Report:
    return Report(number=number, epoch=1, metrics={"loss": float(number % 10)})


def test_lanes_of_the_first_study_stay_and_others_get_joint_numbers() -> None:
    assert rename_lanes(0, LANES) == list(LANES)
    assert [lane.number for lane in rename_lanes(1, LANES)] == [FOUR, FIVE]


def test_a_study_hears_of_its_own_trials_under_their_own_numbers() -> None:
    event = Reported(
        key=1, group=0, reports=(report(4), report(FOUR), report(FIVE)), num_steps=6, seconds=3.0, num_lane_steps=18
    )
    heard = split_event(event, 1, MINE, num_lanes=3)
    assert isinstance(heard, Reported)
    assert (heard.key, heard.group, [one.number for one in heard.reports]) == (9, 4, [4, 5])
    assert (heard.seconds, heard.num_lane_steps, heard.num_steps) == (2.0, 12, 6)


def test_steps_and_time_are_shared_out() -> None:
    heard = split_event(Stepped(key=1, group=0, num_lane_steps=40, done=(4, FIVE)), 1, MINE, num_lanes=4)
    assert heard == Stepped(key=9, group=4, num_lane_steps=20, done=(5,))


def test_a_study_hears_of_its_own_states_alone() -> None:
    event = Saved(key=1, group=0, epochs={3: 2, FOUR: 2}, kept={0: 2, FIVE: 2})
    heard = split_event(event, 1, MINE, num_lanes=4)
    assert isinstance(heard, Saved)
    assert (heard.epochs, heard.kept) == ({4: 2}, {5: 2})


def test_each_study_gets_the_answers_of_its_own_lanes() -> None:
    question = Question(None, "it asked", answers=(True, False, True))
    ending = Ending(outcome=Outcome.APART, lanes=(), question=question, attributes={4: {"a": 1}, FIVE: {"b": 2}})
    event = Ended(key=1, group=0, ending=ending, numbers=(4, FOUR, FIVE), seconds=1.0)
    heard = split_event(event, 1, MINE, num_lanes=3)
    assert isinstance(heard, Ended)
    assert heard.numbers == (4, 5)
    assert heard.ending.question is not None
    assert heard.ending.question.answers == (False, True)
    assert heard.ending.attributes == {5: {"b": 2}}


def test_what_concerns_all_is_told_to_all() -> None:
    assert split_event(Lost(key=1, reason="gone"), 1, MINE, num_lanes=4) == Lost(key=9, reason="gone")


def test_orders_are_carried_out_together() -> None:
    orders = {0: Order(leave=frozenset({2}), save=(2,)), 1: Order(save=(4,), keep=(5,))}
    joined = join_orders(orders, [2, 3, FOUR, FIVE])
    assert joined == Order(leave=frozenset({2}), save=(2, FOUR), keep=(FIVE,))


def test_the_trials_of_who_orders_nothing_leave() -> None:
    assert join_orders({0: Order()}, [2, FOUR]).leave == {FOUR}
