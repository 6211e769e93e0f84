"""Shares of unlike devices: exact ones, greedy ones, and how far these are apart."""

from __future__ import annotations

import sys
from random import Random

import pytest
from benchmarks.kind_shares import Contender, Goal, KindShares, share_kinds

from headwater.errors import PlanError

PAIR = {"fast": 1, "slow": 1}


def make_pair(most_devices: float) -> list[Contender]:
    return [
        Contender(key="a", rates={"fast": 4.0, "slow": 1.0}, most_devices=most_devices, work_left=1.0),
        Contender(key="b", rates={"fast": 2.0, "slow": 1.0}, most_devices=most_devices, work_left=2.0),
    ]


def draw(rng: Random) -> tuple[list[Contender], dict[str, int]]:
    kinds = ["a", "b", "c", "d"][: rng.randint(1, 4)]
    contenders = [
        Contender(
            key=f"g{place}",
            rates={kind: rng.choice([0.0, 1.0, 1.0, 1.0]) * rng.uniform(0.2, 8.0) for kind in kinds},
            most_devices=rng.choice([1.0, 4.0, 50.0]),
            weight=rng.choice([1.0, 1.0, 3.0]),
            work_left=rng.uniform(0.5, 50.0),
        )
        for place in range(rng.randint(1, 12))
    ]
    return contenders, {kind: rng.randint(1, 12) for kind in kinds}


def test_who_gains_less_by_the_fast_device_has_the_slow_one_and_a_part_of_the_fast() -> None:
    """By hand: a has x of the fast device, b all the rest; 4 x / 2.5 = (3 - 2 x) / 1.5."""
    found = share_kinds(make_pair(2.0), PAIR)
    assert found.value == pytest.approx(12 / 11)
    assert found.shares["a"] == pytest.approx({"fast": 7.5 / 11})
    assert found.shares["b"] == pytest.approx({"fast": 3.5 / 11, "slow": 1.0})


def test_with_a_device_each_nothing_is_better_than_equal_times() -> None:
    assert share_kinds(make_pair(1.0), PAIR).value == pytest.approx(1.0)


@pytest.mark.parametrize("is_exact", [True, False])
def test_what_is_short_and_gains_most_is_first_where_all_are_to_end_soon(is_exact: bool) -> None:
    found = share_kinds(make_pair(1.0), PAIR, Goal.SOONEST, is_exact=is_exact)
    assert found.shares == {"a": pytest.approx({"fast": 1.0}), "b": pytest.approx({"slow": 1.0})}
    assert found.value == pytest.approx(4.5)


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("seed", range(25))
def test_greedy_shares_keep_within_limits_and_their_gap_is_true(goal: Goal, seed: int) -> None:
    contenders, counts = draw(Random(seed))
    best, greedy = (share_kinds(contenders, counts, goal, is_exact=is_exact) for is_exact in (True, False))
    for found in (best, greedy):
        require_feasible(found, contenders, counts)
    assert greedy.value <= best.value * (1 + 1e-6)
    assert best.value <= greedy.bound * (1 + 1e-6), "the bound of greedy shares is one"
    assert 0 <= greedy.gap <= 1
    if goal is Goal.FAIREST and best.value:
        assert best.value >= 1 - 1e-6, "nobody has less than by an equal share of everything"


def require_feasible(found: KindShares, contenders: list[Contender], counts: dict[str, int]) -> None:
    for kind, count in counts.items():
        assert sum(share.get(kind, 0.0) for share in found.shares.values()) <= count + 1e-6
    for one in contenders:
        assert sum(found.shares[one.key].values()) <= one.most_devices + 1e-6


def test_greedy_shares_of_many_are_near_the_bound() -> None:
    rng = Random(1)
    contenders = [
        Contender(key=str(place), rates={kind: rng.uniform(1, 6) for kind in "abc"}, most_devices=40.0)
        for place in range(150)
    ]
    found = share_kinds(contenders, {"a": 300, "b": 400, "c": 300}, is_exact=False)
    assert found.gap < 0.05


@pytest.mark.parametrize("work_left", [1e-9, 1e9])
def test_no_device_is_idle_however_much_is_left(work_left: float) -> None:
    contenders = [Contender(key=key, rates={"fast": 1.0}, work_left=work_left) for key in "ab"]
    found = share_kinds(contenders, {"fast": 2}, Goal.SOONEST)
    assert found.shares == {"a": pytest.approx({"fast": 1.0}), "b": pytest.approx({"fast": 1.0})}


def test_what_can_train_nowhere_has_nothing() -> None:
    found = share_kinds([Contender(key="a", rates={"fast": 0.0}), *make_pair(1.0)[1:]], {"fast": 2})
    assert found.shares["a"] == {}
    assert share_kinds([], {"fast": 2}).gap == 0.0


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError, match="the last two above 0"):
        share_kinds([Contender(key="a", rates={"fast": 1.0}, work_left=0.0)], {"fast": 1})
    with pytest.raises(PlanError, match="at least 0 of a kind"):
        share_kinds(make_pair(1.0), {"fast": -1})


def test_where_scipy_is_missing_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(PlanError, match=r"pip install 'headwater\[samplers\]'"):
        share_kinds(make_pair(1.0), PAIR)
    assert share_kinds(make_pair(1.0), PAIR, is_exact=False).value > 0
