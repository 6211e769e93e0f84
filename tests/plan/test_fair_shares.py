"""Who has which devices, where many users share them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.plan.fair_shares import FadingUse, StudyDemand, User, share_devices, weigh_shares
from headwater.trials import Device

PLENTY = 1000


def make_devices(num_devices: int, kind: str = "gpu") -> list[Device]:
    return [Device(name=f"{kind}:{place}", kind=kind) for place in range(num_devices)]


def make_study(name: str, num_wanted: int = PLENTY, **values: Any) -> StudyDemand:
    """Return a study whose user is the part of its name before the dot."""
    return StudyDemand(id=name, user=name.partition(".")[0], num_wanted=num_wanted, **values)


def count(users: list[User], studies: list[StudyDemand], num_devices: int, **settings: Any) -> dict[str, int]:
    shares = share_devices(users, studies, make_devices(num_devices), 0.0, **settings)
    return {study: len(names) for study, names in shares.items()}


def test_users_share_alike_whatever_their_number_of_studies() -> None:
    studies = [make_study("ann.1"), make_study("ann.2"), make_study("ann.3"), make_study("bob.1")]
    assert count([User(name="ann"), User(name="bob")], studies, 12) == {"ann.1": 2, "ann.2": 2, "ann.3": 2, "bob.1": 6}


def test_weights_count() -> None:
    studies = [make_study("ann.1"), make_study("bob.1")]
    assert count([User(name="ann", weight=3.0), User(name="bob")], studies, 8) == {"ann.1": 6, "bob.1": 2}


def test_what_one_cannot_use_is_the_others() -> None:
    studies = [make_study("ann.1", 1), make_study("bob.1"), make_study("cid.1", 3)]
    users = [User(name="ann"), User(name="bob"), User(name="cid")]
    assert count(users, studies, 10) == {"ann.1": 1, "bob.1": 6, "cid.1": 3}


def test_a_minimum_comes_before_weights_and_a_maximum_holds_even_if_devices_are_idle() -> None:
    users = [User(name="ann", min_devices=5), User(name="bob", weight=9.0, max_devices=2), User(name="cid")]
    studies = [make_study("ann.1"), make_study("bob.1"), make_study("cid.1", 1)]
    assert count(users, studies, 8) == {"ann.1": 5, "bob.1": 2, "cid.1": 1}
    assert count(users[1:], studies[1:], 8) == {"bob.1": 2, "cid.1": 1}


def test_minimums_that_are_too_many_are_shared_by_weight() -> None:
    users = [User(name="ann", min_devices=6), User(name="bob", min_devices=6, weight=2.0), User(name="cid")]
    studies = [make_study("ann.1"), make_study("bob.1"), make_study("cid.1")]
    assert count(users, studies, 9) == {"ann.1": 3, "bob.1": 6, "cid.1": 0}


def test_higher_priorities_of_a_user_come_first_and_concern_nobody_else() -> None:
    studies = [make_study("ann.1", 3), make_study("ann.2", 3, priority=1.0), make_study("bob.1")]
    assert count([User(name="ann"), User(name="bob")], studies, 8) == {"ann.1": 1, "ann.2": 3, "bob.1": 4}


def test_nothing_is_given_to_what_has_no_budget() -> None:
    studies = [make_study("ann.1", budget_left_s=0.0), make_study("ann.2", 2), make_study("bob.1"), make_study("cid.1")]
    users = [User(name="ann"), User(name="bob", budget_left_s=-1.0), User(name="cid", budget_left_s=1.0)]
    assert count(users, studies, 8) == {"ann.1": 0, "ann.2": 2, "bob.1": 0, "cid.1": 6}


def test_a_budget_lasts_until_the_next_report() -> None:
    studies = [make_study("ann.1", budget_left_s=35.0, report_s=10.0), make_study("bob.1", report_s=10.0)]
    assert count([User(name="ann"), User(name="bob", budget_left_s=9.0)], studies, 8) == {"ann.1": 3, "bob.1": 0}


def test_who_has_used_least_gets_what_cannot_be_divided() -> None:
    users = [User(name="ann", use=FadingUse(device_s=50.0)), User(name="bob"), User(name="cid")]
    studies = [make_study("ann.1"), make_study("bob.1"), make_study("cid.1")]
    assert count(users, studies, 5) == {"ann.1": 1, "bob.1": 2, "cid.1": 2}


def test_use_fades_by_half_in_a_half_life() -> None:
    use = FadingUse(device_s=80.0, at_s=100.0, half_life_s=60.0)
    assert use.read(160.0) == pytest.approx(40.0)
    assert use.read(220.0) == pytest.approx(20.0)
    assert use.read(0.0) == 80.0, "a clock that goes back changes nothing"


def test_use_is_summed_alike_in_one_step_and_in_many() -> None:
    use = FadingUse(half_life_s=30.0)
    at_once = use.add(4, 90.0)
    for second in range(1, 91):
        use = use.add(4, float(second))
    assert use.read(90.0) == pytest.approx(at_once.read(90.0))
    assert at_once.read(90.0) == pytest.approx(4 * 30 / 0.6931471805599453 * (1 - 0.125))


def test_users_take_turns_where_there_are_fewer_devices_than_users() -> None:
    """Three users on two devices: after five minutes each has had two thirds of a device, within a turn."""
    users = {name: User(name=name) for name in ("ann", "bob", "cid")}
    held: dict[str, tuple[str, ...]] = {}
    seconds: Counter[str] = Counter()
    num_moves = 0
    for now in range(300):
        studies = [make_study(f"{name}.1", devices=held.get(f"{name}.1", ())) for name in users]
        shares = share_devices([*users.values()], studies, make_devices(2), float(now), turn_s=5.0)
        num_moves += sum(bool(set(shares[study.id]) - set(study.devices)) for study in studies)
        held = shares
        for name, user in users.items():
            seconds[name] += len(held[f"{name}.1"])
            users[name] = replace(user, use=user.use.add(len(held[f"{name}.1"]), now + 1.0))
    assert sum(seconds.values()) == 600
    assert all(abs(seconds[name] - 200) <= 5 for name in users)
    assert num_moves <= 2 + 300 / 5, "nobody gives a device back before his turn is over"


def test_a_study_keeps_what_it_has_as_far_as_its_share_goes() -> None:
    devices = make_devices(6)
    ann = make_study("ann.1", devices=("gpu:5", "gpu:1", "gpu:3", "gpu:0", "gpu:2", "gpu:4"))
    shares = share_devices([User(name="ann"), User(name="bob")], [ann, make_study("bob.1")], devices, 0.0)
    assert shares["ann.1"] == ("gpu:5", "gpu:1", "gpu:3")
    assert sorted(shares["bob.1"]) == ["gpu:0", "gpu:2", "gpu:4"]


def test_devices_that_are_gone_are_not_given() -> None:
    ann = make_study("ann.1", 2, devices=("gpu:9", "gpu:1"))
    assert share_devices([User(name="ann")], [ann], make_devices(2), 0.0) == {"ann.1": ("gpu:1", "gpu:0")}


def test_each_has_fast_and_slow_devices_where_all_prefer_the_fast_ones() -> None:
    devices = [*make_devices(4, "fast"), *make_devices(4, "slow")]
    speeds = {"fast": 3.0, "slow": 1.0}
    ann = make_study("ann.1", speeds=speeds, devices=tuple(f"fast:{place}" for place in range(4)))
    shares = share_devices(
        [User(name="ann"), User(name="bob")], [ann, make_study("bob.1", speeds=speeds)], devices, 0.0
    )
    assert {study: Counter(name[:4] for name in names) for study, names in shares.items()} == {
        "ann.1": {"fast": 2, "slow": 2},
        "bob.1": {"fast": 2, "slow": 2},
    }


def test_who_gains_nothing_by_fast_devices_leaves_them_to_others() -> None:
    devices = [*make_devices(2, "fast"), *make_devices(2, "slow")]
    ann = make_study("ann.1", 2, speeds={"fast": 1.0, "slow": 1.0}, devices=("slow:0", "slow:1"))
    bob = make_study("bob.1", 2, speeds={"fast": 3.0, "slow": 1.0})
    shares = share_devices([User(name="ann"), User(name="bob")], [ann, bob], devices, 0.0)
    assert {*shares["ann.1"]} == {"slow:0", "slow:1"}
    assert {*shares["bob.1"]} == {"fast:0", "fast:1"}


@pytest.mark.parametrize(("num_wanted", "kind"), [(2, "slow"), (1, "fast")])
def test_who_keeps_less_than_half_of_a_fast_device_busy_has_a_slow_one_if_others_wait(
    num_wanted: int, kind: str
) -> None:
    devices = [*make_devices(1, "fast"), *make_devices(1, "slow")]
    speeds = {"fast": 2.0, "slow": 1.0}
    ann = make_study("ann.1", 1, speeds=speeds, utilisations={"fast": 0.4, "slow": 0.7})
    bob = make_study("bob.1", num_wanted, speeds=speeds)
    shares = share_devices([User(name="ann"), User(name="bob")], [ann, bob], devices, 0.0)
    assert shares["ann.1"] == (f"{kind}:0",)


def test_what_cannot_train_on_a_kind_does_not_get_it_and_others_do() -> None:
    devices = [*make_devices(2, "large"), *make_devices(2, "small")]
    studies = [make_study("ann.1", speeds={"small": 0.0}), make_study("bob.1", speeds={"large": 1.0, "small": 0.1})]
    shares = share_devices([User(name="ann"), User(name="bob")], studies, devices, 0.0)
    assert all(name.startswith("large") for name in shares["ann.1"])
    assert sum(map(len, shares.values())) == 4


def test_a_study_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(PlanError, match=r"whose is zoe\.1\? its user is none of ann"):
        count([User(name="ann")], [make_study("zoe.1")], 1)
    with pytest.raises(PlanError, match=r"two studies are called ann\.1"):
        count([User(name="ann")], [make_study("ann.1"), make_study("ann.1")], 1)


@pytest.mark.parametrize("values", [{"weight": 0.0}, {"min_devices": 3, "max_devices": 2}, {"min_devices": -1}])
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="ann has"):
        User(name="ann", **values)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[User], list[StudyDemand], list[Device]]:
    rng = Random(draw(st.integers(0, 10**6)))
    users = []
    for place in range(rng.randint(1, 6)):
        low = rng.choice([0, 0, rng.randint(0, 4)])
        users.append(
            User(
                name=f"u{place}",
                weight=rng.choice([1.0, 1.0, 0.3, 2.5]),
                min_devices=low,
                max_devices=rng.choice([None, low + rng.randint(0, 8)]),
                use=FadingUse(device_s=rng.uniform(0, 1e4)),
                budget_left_s=rng.choice([None, None, 0.0, 50.0]),
            )
        )
    devices = make_devices(rng.randint(0, 24))
    free = [device.name for device in devices]
    rng.shuffle(free)
    studies = []
    for place in range(rng.randint(1, 12)):
        held = tuple(free.pop() for _ in range(min(len(free), rng.randint(0, 4))))
        studies.append(
            StudyDemand(
                id=f"s{place}",
                user=rng.choice(users).name,
                num_wanted=rng.randint(0, 12),
                priority=rng.choice([0.0, 0.0, 1.0]),
                devices=held,
                budget_left_s=rng.choice([None, None, 0.0, 70.0]),
                report_s=rng.choice([0.0, 20.0]),
            )
        )
    return users, studies, devices


def find_most(user: User, studies: list[StudyDemand]) -> int:
    """Return how many devices a user may have, written another way than in the module."""
    wanted = 0
    longest_s = 0.0
    for study in (one for one in studies if one.user == user.name):
        own = 0
        while own < study.num_wanted and (
            study.budget_left_s is None
            or (study.budget_left_s > 0 and (own + 1) * study.report_s <= study.budget_left_s)
        ):
            own += 1
        wanted += own
        longest_s = max(longest_s, study.report_s if own else 0.0)
    if user.budget_left_s is not None:
        wanted = 0 if user.budget_left_s <= 0 else wanted
        while wanted * longest_s > (user.budget_left_s or 0.0):
            wanted -= 1
    return wanted if user.max_devices is None else min(wanted, user.max_devices)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_whatever_is_asked_the_rules_hold(case: tuple[list[User], list[StudyDemand], list[Device]]) -> None:
    users, studies, devices = case
    shares = share_devices(users, studies, devices, 10.0)
    names = [name for given_names in shares.values() for name in given_names]
    assert len(set(names)) == len(names), "no device is given twice"
    assert {*names} <= {device.name for device in devices}
    wanted = {study.id: study.num_wanted for study in studies}
    assert all(len(given_names) <= wanted[study] for study, given_names in shares.items())
    most = {user.name: find_most(user, studies) for user in users}
    has = {user.name: sum(len(shares[study.id]) for study in studies if study.user == user.name) for user in users}
    assert all(has[name] <= most[name] for name in has), "a maximum or a budget was exceeded"
    assert len(names) == min(len(devices), sum(most.values())), "a device is idle that somebody could use"
    lows = {user.name: min(user.min_devices, most[user.name]) for user in users}
    if sum(lows.values()) <= len(devices):
        assert all(has[name] >= lows[name] for name in has), "a minimum was not kept"
    ideal = weigh_shares(users, most, len(devices))
    assert all(abs(has[name] - ideal[name]) < 1 for name in has), "no further than one device from max-min"
    for one in users:
        for other in users:
            wants_more = has[one.name] < most[one.name] and one.weight == other.weight
            if wants_more and has[other.name] > lows[other.name]:
                assert has[other.name] <= has[one.name] + 1, "somebody has reason to envy by more than one device"


@settings(max_examples=150, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    case: tuple[list[User], list[StudyDemand], list[Device]], rng: Random
) -> None:
    users, studies, devices = case
    expected = share_devices(users, studies, devices, 10.0)
    for part in (users, studies, devices):
        rng.shuffle(part)
    assert share_devices(users, studies, devices, 10.0) == expected


@settings(max_examples=150, deadline=None)
@given(cases())
def test_what_was_shared_stays_as_it_is_while_nothing_changes(
    case: tuple[list[User], list[StudyDemand], list[Device]],
) -> None:
    users, studies, devices = case
    shares = share_devices(users, studies, devices, 10.0)
    settled = [replace(study, devices=shares[study.id]) for study in studies]
    assert share_devices(users, settled, devices, 10.0) == shares


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_nobody_would_rather_have_the_devices_of_another_but_for_one(num_users: int, seed: int) -> None:
    """With one study each and equal weights, by the speeds of each for himself."""
    rng = Random(seed)
    kinds = ["a", "b", "c"][: rng.randint(1, 3)]
    devices = [device for kind in kinds for device in make_devices(rng.randint(0, 7), kind)]
    studies = [
        make_study(f"u{place}.1", speeds={kind: rng.uniform(0.1, 5) for kind in kinds}) for place in range(num_users)
    ]
    shares = share_devices([User(name=study.user) for study in studies], studies, devices, 0.0)
    for study in studies:
        speeds = {
            other: sorted((study.speeds[name.partition(":")[0]] for name in names), reverse=True)
            for other, names in shares.items()
        }
        assert all(sum(speeds[study.id]) >= sum(other[1:]) - 1e-9 for other in speeds.values())
