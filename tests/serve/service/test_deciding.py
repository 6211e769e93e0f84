"""What the service decides, as functions of values."""

from __future__ import annotations

import pytest

from headwater.plan.fair_shares import StudyDemand, User, share_devices
from headwater.serve.service.deciding import Claim, Step, What, count_wanted, decide_end, decide_limit, decide_steps
from headwater.serve.service.values import State, Submission, Wish
from headwater.trials import Device


def make(**changes: object) -> Submission:
    plain = {"id": "a", "user": "ada", "file": "train.py", "options": {}, "state": State.RUNNING, "created": 0.0}
    return Submission(**{**plain, **changes})  # type: ignore[arg-type] # settings of a submission


def test_nothing_is_given_that_another_still_has() -> None:
    claims = [Claim(id="a", is_running=True, num_told=4, num_held=4), Claim(id="b", is_running=False)]
    shares = {"a": 2, "b": 2}
    assert decide_steps(claims, shares, 4) == [Step(What.GIVE, "a", 2)]
    told = [Claim(id="a", is_running=True, num_told=2, num_held=4), claims[1]]
    assert decide_steps(told, shares, 4) == []
    left = [Claim(id="a", is_running=True, num_told=2, num_held=3), claims[1]]
    assert decide_steps(left, shares, 4) == [Step(What.START, "b", 1)]


def test_what_runs_grows_before_others_start() -> None:
    claims = [Claim(id="b", is_running=False), Claim(id="a", is_running=True, num_told=1, num_held=1)]
    assert decide_steps(claims, {"a": 2, "b": 2}, 3) == [Step(What.GIVE, "a", 2), Step(What.START, "b", 1)]


def test_a_study_without_a_share_ends_at_its_next_report() -> None:
    claims = [Claim(id="a", is_running=True, num_told=1, num_held=1), Claim(id="b", is_running=False)]
    assert decide_steps(claims, {"a": 0, "b": 1}, 1) == [Step(What.YIELD, "a")]


@pytest.mark.parametrize(
    ("wish", "status", "state"),
    [
        (Wish.NONE, 0, State.DONE),
        (Wish.PAUSE, 0, State.DONE),
        (Wish.PAUSE, 130, State.PAUSED),
        (Wish.STOP, 130, State.STOPPED),
        (Wish.STOP, -9, State.STOPPED),
        (Wish.YIELD, 130, State.QUEUED),
        (Wish.PAUSE, None, State.PAUSED),
        (Wish.NONE, 1, State.FAILED),
        (Wish.NONE, 2, State.FAILED),
        (Wish.NONE, -9, State.QUEUED),
        (Wish.NONE, None, State.QUEUED),
        (Wish.NONE, 130, State.QUEUED),
    ],
)
def test_an_end_means_what_was_wished(wish: Wish, status: int | None, state: State) -> None:
    assert decide_end(make(wish=wish), status, "", has_progressed=False)["state"] is state


def test_deaths_are_counted_until_there_is_progress() -> None:
    twice = make(num_deaths=2)
    failed = decide_end(twice, -9, "last words\n", has_progressed=False)
    assert (failed["state"], failed["num_deaths"]) == (State.FAILED, 3)
    assert failed["reason"].endswith("the last time by signal 9: last words")
    assert decide_end(twice, -9, "", has_progressed=True)["num_deaths"] == 1


def test_limits_say_which_one_is_reached() -> None:
    assert decide_limit(make(), 100.0, None) is None
    assert decide_limit(make(deadline=100.0), 99.9, None) is None
    assert decide_limit(make(deadline=100.0), 100.0, None) == "its deadline has passed"
    used = make(budget_device_s=5.0, device_seconds=5.0)
    assert decide_limit(used, 0.0, None) == "its budget of 5 device-seconds is used up"
    assert decide_limit(make(), 0.0, 0.0) == "the budget of user ada is used up"


def share(*studies: StudyDemand, num_devices: int, **limits: int | None) -> dict[str, int]:
    users = [User(name=name, max_devices=limits.get(name)) for name in sorted({study.user for study in studies})]
    devices = [Device(name=f"cpu:{place}") for place in range(num_devices)]
    shares = share_devices(users, studies, devices, 0.0)
    given = [name for names in shares.values() for name in names]
    assert len(given) == len(set(given)) <= num_devices
    return {study: len(names) for study, names in shares.items()}


def test_users_share_evenly_however_many_studies_each_has() -> None:
    studies = [StudyDemand(id=name, user="ada", num_wanted=6) for name in "abc"]
    other = StudyDemand(id="z", user="zoe", num_wanted=6)
    assert share(*studies, other, num_devices=6) == {"a": 1, "b": 1, "c": 1, "z": 3}


def test_a_study_of_higher_priority_and_then_the_older_one_comes_first() -> None:
    old = StudyDemand(id="x", user="ada", num_wanted=1, submitted_s=1)
    new = StudyDemand(id="a", user="ada", num_wanted=1, submitted_s=2)
    assert share(old, new, num_devices=1) == {"x": 1, "a": 0}
    first = StudyDemand(id="a", user="ada", num_wanted=1, submitted_s=2, priority=1)
    assert share(old, first, num_devices=1) == {"x": 0, "a": 1}


def test_nobody_gets_more_than_may_be_or_can_be_used() -> None:
    studies = [StudyDemand(id="a", user="ada", num_wanted=1), StudyDemand(id="b", user="ada", num_wanted=8)]
    assert share(*studies, num_devices=8, ada=3) == {"a": 1, "b": 2}
    assert share(StudyDemand(id="a", user="ada", num_wanted=4, budget_left_s=0.0), num_devices=8) == {"a": 0}


def test_a_study_keeps_the_devices_that_it_has() -> None:
    studies = [
        StudyDemand(id="a", user="ada", num_wanted=2),
        StudyDemand(id="b", user="ada", num_wanted=2, devices=("cpu:0",)),
    ]
    shares = share_devices([User(name="ada")], studies, [Device(name="cpu:0"), Device(name="cpu:1")], 0.0)
    assert shares == {"a": ("cpu:1",), "b": ("cpu:0",)}


@pytest.mark.parametrize(
    ("progress", "max_devices", "wanted"),
    [
        ({}, None, 8),
        ({}, 3, 3),
        ({"num_trials": 10, "statuses": {"running": 4, "completed": 5}}, None, 5),
        ({"num_trials": 10, "statuses": {"running": 4, "completed": 5}, "stage": "a-target"}, None, 8),
        ({"num_trials": 10, "statuses": {"completed": 10}}, None, 1),
        ({"num_trials": "many", "statuses": []}, None, 8),
    ],
)
def test_a_study_wants_no_more_devices_than_it_has_trials_left(
    progress: dict[str, object], max_devices: int | None, wanted: int
) -> None:
    assert count_wanted(make(progress=progress, max_devices=max_devices), 8) == wanted


@pytest.mark.parametrize(("options", "wanted"), [({}, 8), ({"trials": 3}, 3), ({"trials": 200}, 8)])
def test_before_it_has_begun_a_study_wants_no_more_than_the_trials_that_were_asked_for(
    options: dict[str, object], wanted: int
) -> None:
    assert count_wanted(make(options=options), 8) == wanted
