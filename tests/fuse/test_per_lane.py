"""Numbers and words that differ by lane compute lane by lane, and part the lanes where one value is asked for."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse.per_lane import PerLane, PerLaneText, lane_value
from headwater.fuse.roster import Roster
from headwater.trials import Recipe

CONFIGS = [{"x": 1.5, "name": "ReLU"}, {"x": -2.0, "name": "Tanh"}, {"x": 4.0, "name": "ReLU"}]
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.eq,
    operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [operator.neg, operator.pos, abs, round, math.floor, math.ceil, math.trunc]
FLOATS = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6)


@pytest.fixture
def roster() -> Roster:
    return Roster(CONFIGS)


@given(st.lists(FLOATS, min_size=3, max_size=3), FLOATS, st.sampled_from(BINARY))
def test_arithmetic_goes_lane_by_lane_on_both_sides(values: list[float], other: float, operate: Any) -> None:
    lanes = PerLane(values, Roster(CONFIGS))
    assert operate(lanes, other).values == tuple(operate(value, other) for value in values)
    assert operate(other, lanes).values == tuple(operate(other, value) for value in values)
    assert operate(lanes, lanes).values == tuple(operate(value, value) for value in values)


@pytest.mark.parametrize("operate", UNARY)
def test_functions_of_one_number_go_lane_by_lane(roster: Roster, operate: Callable[[Any], Any]) -> None:
    assert operate(PerLane((1.5, -2.4, 4.0), roster)).values == (operate(1.5), operate(-2.4), operate(4.0))


def test_a_value_that_all_lanes_share_is_plain(roster: Roster) -> None:
    assert lane_value((2, 2, 2), roster, None) == 2
    assert isinstance(lane_value((2, 2, 3), roster, None), PerLane)
    assert isinstance(lane_value(("a", "a", "b"), roster, None), PerLaneText)


@pytest.mark.parametrize("ask", [int, float, bool, hash, range, {1: 2}.get, lambda v: [0] * v, lambda v: {v: 1}])
def test_lanes_part_by_the_recipe_of_the_value(roster: Roster, ask: Callable[[Any], Any]) -> None:
    value = PerLane((1, 0, 3), roster, Recipe("layers", lambda config: config["x"]))
    with pytest.raises(LanesPart):
        ask(value)
    assert roster.question is not None
    assert roster.question.recipe is not None


def test_the_recipe_follows_the_arithmetic(roster: Roster) -> None:
    value = PerLane([config["x"] for config in CONFIGS], roster, Recipe("x", lambda config: config["x"]))
    with pytest.raises(LanesPart):
        int(2 * abs(value) + 1)
    assert roster.question is not None
    recipe = roster.question.recipe
    assert recipe is not None
    assert [recipe.evaluate(config) for config in CONFIGS] == [4.0, 5.0, 9.0]


def test_lanes_that_agree_answer_as_one(roster: Roster) -> None:
    value = PerLane((3, 3, 3), roster)
    assert (int(value), float(value), bool(value), list(range(value))) == (3, 3.0, True, [0, 1, 2])
    assert bool(PerLane((1, 2, 3), roster) > 0)


def test_arithmetic_that_fails_in_one_lane_only_parts_the_lanes(roster: Roster) -> None:
    with pytest.raises(LanesPart):
        1 / PerLane((1, 0, 2), roster)
    with pytest.raises(ZeroDivisionError):
        1 / PerLane((0, 0, 0), roster)


def test_an_attribute_that_numbers_lack_is_missing_and_does_not_part_the_lanes(roster: Roster) -> None:
    assert not hasattr(PerLane((1.0, 2.0, 3.0), roster), "dtype")
    assert roster.question is None


def test_a_copy_stays_with_its_roster(roster: Roster) -> None:
    layer = nn.Dropout(PerLane((0.1, 0.2, 0.3), roster))  # type: ignore[arg-type]  # what a configuration may hold
    twin = copy.deepcopy(layer)
    roster.narrow([0, 2])
    assert twin.p.values == (0.1, 0.3)  # type: ignore[attr-defined]
    assert copy.copy(layer.p) is layer.p


def test_pickling_is_refused(roster: Roster) -> None:
    with pytest.raises(CannotFuseError, match="pickles"):
        pickle.dumps(PerLane((1, 2, 3), roster))


def test_text_shows_all_lanes(roster: Roster) -> None:
    value = PerLane((0.5, 0.25, 1.0), roster)
    assert f"{value:.1f} {value}" == "[0.5 0.2 1.0] [0.5 0.25 1.0]"


WORDS = ("ReLU", "Tanh", "ReLU")


@pytest.mark.parametrize(
    "ask",
    [
        lambda word: getattr(nn, word), lambda word: {"ReLU": 1}[word], lambda word: word.lower(),
        lambda word: word == "ReLU", lambda word: "nn." + word, lambda word: word + "6", len, lambda word: word[1:],
        lambda word: word in {"ReLU"}, float, lambda word: word * 2, lambda word: sorted([word, "A"]),
    ],
)  # fmt: skip
def test_lanes_part_by_a_word(roster: Roster, ask: Callable[[Any], Any]) -> None:
    word = PerLaneText(WORDS, roster, Recipe("name", lambda config: config["name"]))
    with pytest.raises(LanesPart):
        ask(word)
    assert roster.question is not None
    assert roster.question.recipe is not None


def test_a_question_that_all_words_answer_alike_parts_nobody(roster: Roster) -> None:
    word = PerLaneText(WORDS, roster, None)
    assert word
    assert word != "GELU"
    assert word not in ("GELU", "SiLU")
    assert f"{word}" == "[ReLU Tanh ReLU]"
    assert copy.deepcopy(word) is word
