"""What a study has learnt survives as text, and what is no such text teaches nothing."""

from __future__ import annotations

import enum
import json
import math
import operator
from dataclasses import replace
from typing import Any

import pytest

from headwater.space import Space, choice
from headwater.trials import ChosenWay, KindProfile, KindTimes, Learnt, Measurement, Profile, Recipe
from headwater.trials.recipes import Call, Constant, Key

SIZE = Recipe("size", Key(("size",)))
LARGE = Recipe("size > 8", Call(operator.gt, (Key(("size",)), Constant(8))))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def profile(*kind: Any, num_asked: int = 8, num_lanes: int = 4) -> KindProfile:
    measurements = (
        Measurement(num_lanes=1, seconds_per_lane_step=0.02, peak_bytes=1000),
        Measurement(num_lanes=4, seconds_per_lane_step=0.01, loading_s=0.001),
    )
    found = Profile(num_lanes=num_lanes, reason="fastest", measurements=measurements, label="size = 8")
    return KindProfile(kind=kind, num_asked=num_asked, profile=found)


def way(name: str, magnitude: int = 7) -> ChosenWay:
    return ChosenWay(key="('linear', 2, torch.float32)", magnitude=magnitude, way=name)


LEARNT = Learnt(
    recipes=(SIZE, LARGE),
    apart="the code branches on a value",
    profiles=(profile(("int", 8), ("bool", False)), profile("KeyError('size')", ("bool", True))),
    strategies=(way("wide"), way("batched", 3)),
    times=(
        KindTimes(kind=(("int", 8), ("bool", False)), epochs=((1, 1, 4.0), (1, 2, 2.5)), shares=((2, 0.625),)),
        KindTimes(kind=("KeyError('size')", ("bool", True)), epochs=((8, 1, 9.5),)),
    ),
    change_s=0.75,
)


def test_what_was_learnt_survives_as_text() -> None:
    assert Learnt.from_json(LEARNT.to_json()) == LEARNT
    assert Learnt.from_json(Learnt().to_json()) == Learnt()


def test_what_was_learnt_before_times_were_is_still_known() -> None:
    data = json.loads(LEARNT.to_json())
    del data["times"], data["change_s"]
    assert Learnt.from_json(json.dumps(data)) == replace(LEARNT, times=(), change_s=None)


def test_options_of_the_space_may_be_in_it() -> None:
    space = Space({"colour": choice([Colour.RED, Colour.BLUE])})
    recipe = Recipe("is(colour, BLUE)", Call(operator.is_, (Key(("colour",)), Constant(Colour.BLUE))))
    times = KindTimes(kind=(("Colour", Colour.RED),), shares=((2, 0.5),))
    learnt = Learnt(recipes=(recipe,), profiles=(profile(("Colour", Colour.RED)),), times=(times,))
    assert Learnt.from_json(learnt.to_json(space.options), space.options) == learnt
    assert Learnt.from_json(learnt.to_json(space.options)) == Learnt()


def test_what_cannot_be_data_is_left_out_with_the_profiles_that_need_it() -> None:
    odd = Recipe("odd", Call(operator.eq, (Key(("size",)), Constant(object()))))
    some = Learnt(recipes=(SIZE,), profiles=(profile(("object", object())), profile(("int", 8))))
    some = replace(some, times=(KindTimes(kind=(("object", object()),)), KindTimes(kind=(("int", 8),))))
    assert Learnt.from_json(some.to_json()).profiles == (profile(("int", 8)),)
    assert Learnt.from_json(some.to_json()).times == (KindTimes(kind=(("int", 8),)),)
    both = Learnt(recipes=(SIZE, odd), profiles=(profile(("int", 8), ("bool", True)),), strategies=LEARNT.strategies)
    assert Learnt.from_json(both.to_json()) == Learnt(recipes=(SIZE,), strategies=LEARNT.strategies)


def _changed(**changes: Any) -> str:
    return json.dumps(json.loads(LEARNT.to_json()) | changes)


PROFILE = json.loads(LEARNT.to_json())["profiles"][0]
TIMES = json.loads(LEARNT.to_json())["times"][0]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "[]", "{}", "[" * 100_000, _changed(version=2), _changed(version="1"), _changed(recipes=None),
        _changed(recipes=[{"label": "it", "asks_failure": False, "steps": [["call", "os.system", [], []]]}]),
        _changed(recipes=[{"label": "it"}]), _changed(apart=3), _changed(profiles=[{}]),
        _changed(profiles=[PROFILE | {"kind": ["one too few"]}]), _changed(profiles=[PROFILE | {"num_asked": "8"}]),
        _changed(profiles=[PROFILE | {"kind": [["list", []], 1]}]), _changed(profiles=[PROFILE | {"profile": None}]),
        _changed(profiles=[PROFILE | {"profile": PROFILE["profile"] | {"num_lanes": 0}}]),
        _changed(profiles=[PROFILE | {"profile": PROFILE["profile"] | {"measurements": [{"num_lanes": 0}]}}]),
        _changed(strategies=[["key", "7", "wide"]]), _changed(strategies={"key": "wide"}), _changed(strategies=[3]),
        _changed(times=3), _changed(times=[3]), _changed(times=[{}]), _changed(times=[TIMES | {"kind": []}]),
        _changed(times=[TIMES | {"epochs": [[0, 1, 1.0]]}]), _changed(times=[TIMES | {"epochs": [[1, 1, 0.0]]}]),
        _changed(times=[TIMES | {"epochs": [[1, 1, "1"]]}]), _changed(times=[TIMES | {"shares": [[1, 1.0]]}]),
        _changed(times=[TIMES | {"shares": [[2, math.inf]]}]), _changed(times=[TIMES | {"shares": [[2, math.nan]]}]),
        _changed(times=[TIMES | {"shares": [[2, 10**400]]}]), _changed(change_s="1"), _changed(change_s=-1.0),
    ],
)  # fmt: skip
def test_any_other_text_teaches_nothing(text: str) -> None:
    assert Learnt.from_json(text) == Learnt()


def test_two_that_know_the_same_recipes_know_the_profiles_of_both() -> None:
    first = Learnt(recipes=(SIZE, LARGE), profiles=(profile(("int", 8), ("bool", False)),))
    kind = (("bool", False), ("int", 8))
    second = Learnt(recipes=(LARGE, SIZE), profiles=(profile(*kind, num_asked=16, num_lanes=8), profile("a", "b")))
    assert first.merge(second) == Learnt(
        recipes=(SIZE, LARGE),
        profiles=(profile(("int", 8), ("bool", False), num_asked=16, num_lanes=8), profile("b", "a")),
    )
    assert second.merge(first).profiles == second.profiles


def test_a_profile_of_kinds_told_by_fewer_recipes_is_not_taken_over() -> None:
    first = Learnt(recipes=(SIZE,), profiles=(profile(("int", 8)),))
    second = Learnt(recipes=(LARGE, SIZE), profiles=(profile(("bool", False), ("int", 8)),))
    merged = first.merge(second)
    assert merged == Learnt(recipes=(SIZE, LARGE), profiles=(profile(("int", 8), ("bool", False)),))
    assert first.merge(Learnt()) == Learnt().merge(first) == first


def test_times_of_kinds_are_merged_as_profiles_are() -> None:
    kind, other = (("int", 8), ("bool", False)), (("int", 9), ("bool", True))
    old, only_old = KindTimes(kind=kind, shares=((2, 0.9),)), KindTimes(kind=other, shares=((2, 0.5),))
    first = Learnt(recipes=(SIZE, LARGE), times=(old, only_old), change_s=2.0)
    second = Learnt(recipes=(LARGE, SIZE), times=(KindTimes(kind=kind[::-1], shares=((2, 0.6),)),), change_s=0.0)
    merged = first.merge(second)
    assert merged.times == (KindTimes(kind=kind, shares=((2, 0.6),)), only_old)
    assert merged.change_s == 0.0
    assert first.merge(Learnt(recipes=(SIZE, LARGE))).change_s == 2.0
    assert first.merge(Learnt(recipes=(Recipe("more", Key(("more",))),))).times == ()


def test_the_newer_way_holds_and_the_reason_stays() -> None:
    first = Learnt(apart="a reason", strategies=(way("wide"), way("wide", 3)))
    merged = first.merge(Learnt(strategies=(way("batched"), way("batched", 4))))
    assert merged == Learnt(apart="a reason", strategies=(way("batched"), way("wide", 3), way("batched", 4)))
