"""Numbers and words that differ by lane compute lane by lane, and part the lanes where one value is asked for."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from numbers import Number, Real
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.recipes import require_round_trip
from torch import nn

from headwater.errors import LanesPart
from headwater.fuse.per_lane import PerLane, PerLaneText, lane_value
from headwater.fuse.roster import Roster
from headwater.trials import Recipe
from headwater.trials.recipes import Key

CONFIGS = [{"x": 1.5, "name": "ReLU"}, {"x": -2.0, "name": "Tanh"}, {"x": 4.0, "name": "ReLU"}]
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.eq,
    operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [operator.neg, operator.pos, abs, round, math.floor, math.ceil, math.trunc]
FLOATS = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6)


@pytest.fixture
def roster() -> Iterator[Roster]:
    """Lend a roster; what its lanes part by has to be data."""
    roster = Roster(CONFIGS)
    yield roster
    if roster.question is not None and roster.question.recipe is not None:
        require_round_trip(roster.question.recipe, CONFIGS)


def by_lane(value: Any) -> list[Any]:
    """Return the value of each of three lanes; a truth on which they agree is plain."""
    return list(value.values) if isinstance(value, PerLane) else [value] * 3


@given(st.lists(FLOATS, min_size=3, max_size=3), FLOATS, st.sampled_from(BINARY))
def test_arithmetic_goes_lane_by_lane_on_both_sides(values: list[float], other: float, operate: Any) -> None:
    lanes = PerLane(values, Roster(CONFIGS))
    assert by_lane(operate(lanes, other)) == [operate(value, other) for value in values]
    assert by_lane(operate(other, lanes)) == [operate(other, value) for value in values]
    assert by_lane(operate(lanes, lanes)) == [operate(value, value) for value in values]


@pytest.mark.parametrize("operate", UNARY)
def test_functions_of_one_number_go_lane_by_lane(roster: Roster, operate: Callable[[Any], Any]) -> None:
    assert operate(PerLane((1.5, -2.4, 4.0), roster)).values == (operate(1.5), operate(-2.4), operate(4.0))


def test_a_value_that_all_lanes_share_is_plain(roster: Roster) -> None:
    assert lane_value((2, 2, 2), roster, None) == 2
    assert isinstance(lane_value((2, 2, 3), roster, None), PerLane)
    assert isinstance(lane_value(("a", "a", "b"), roster, None), PerLaneText)


@pytest.mark.parametrize("ask", [int, float, bool, hash, range, {1: 2}.get, lambda v: [0] * v, lambda v: {v: 1}])
def test_lanes_part_by_the_recipe_of_the_value(roster: Roster, ask: Callable[[Any], Any]) -> None:
    value = PerLane((1, 0, 3), roster, Recipe("layers", Key(("x",))))
    with pytest.raises(LanesPart):
        ask(value)
    assert roster.question is not None
    assert roster.question.recipe is not None


def test_the_recipe_follows_the_arithmetic(roster: Roster) -> None:
    value = PerLane([config["x"] for config in CONFIGS], roster, Recipe("x", Key(("x",))))
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
    assert roster.question is not None
    assert roster.question.answers == ("", "ZeroDivisionError", "")
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


def test_pickling_asks_for_one_value(roster: Roster) -> None:
    assert pickle.loads(pickle.dumps(PerLane((2, 2, 2), roster))) == 2
    with pytest.raises(LanesPart):
        pickle.dumps(PerLane((1, 2, 3), roster))


@pytest.mark.parametrize("kind", [int, float, bool, Number, Real])
def test_a_stand_in_is_of_the_type_of_its_values(roster: Roster, kind: type) -> None:
    for values in [(1, 2, 3), (0.5, 1.0, 2.0), (True, False, True)]:
        stand_in: Any = PerLane(values, roster)
        assert isinstance(stand_in, kind) == isinstance(values[0], kind)
        assert isinstance(stand_in, PerLane)


def test_lanes_part_where_the_type_differs_between_them(roster: Roster) -> None:
    with pytest.raises(LanesPart):
        isinstance(PerLane((1, 2.0, 3), roster), float)
    assert roster.question is not None
    assert roster.question.answers == ("<class 'int'>", "<class 'float'>", "<class 'int'>")


@pytest.mark.parametrize("write", [str, repr, "{}".format, "{:.2f}".format, lambda x: f"{x}", "%s".__mod__])
def test_text_that_may_decide_something_parts_the_lanes(roster: Roster, write: Callable[[Any], str]) -> None:
    value = PerLane((0.5, 0.25, 1.0), roster)
    with roster.running():
        with pytest.raises(LanesPart):
            write(value)
        with roster.showing():
            assert "0.5" in write(value)


def test_numpy_gets_plain_numbers_or_the_lanes_part(roster: Roster) -> None:
    assert np.array([PerLane((0.5, 0.5, 0.5), roster), 1.0]).dtype == np.float64
    with pytest.raises(LanesPart):
        np.array([PerLane((0.5, 0.25, 0.5), roster), 1.0])


def test_text_shows_all_lanes(roster: Roster) -> None:
    value = PerLane((0.5, 0.25, 1.0), roster)
    assert f"{value:.1f} {value}" == "[0.5 0.2 1.0] [0.5 0.25 1.0]"


WORDS = ("ReLU", "Tanh", "ReLU")


@pytest.mark.parametrize(
    "ask",
    [
        lambda word: {"ReLU": 1}[word], lambda word: word.lower(), lambda word: bool(word == "ReLU"),
        lambda word: word in {"ReLU"}, lambda word: "R" in word, float, lambda word: sorted([word, "S"]), list,
        lambda word: hash(word + "6"), lambda word: hash("nn." + word), len,
    ],
)  # fmt: skip
def test_lanes_part_by_a_word(roster: Roster, ask: Callable[[Any], Any]) -> None:
    word = PerLaneText(("ReLU", "Tanh", "ReLU6"), roster, Recipe("name", Key(("name",))))
    with pytest.raises(LanesPart):
        ask(word)
    assert roster.question is not None
    assert roster.question.recipe is not None


def test_words_go_lane_by_lane(roster: Roster) -> None:
    word: Any = PerLaneText(WORDS, roster)
    assert ("nn." + word + "!").values == ("nn.ReLU!", "nn.Tanh!", "nn.ReLU!")
    assert (word * 2)[3:].values == ("UReLU", "hTanh", "UReLU")
    assert len(word) == 4


def test_a_question_that_all_words_answer_alike_parts_nobody(roster: Roster) -> None:
    word = PerLaneText(WORDS, roster, None)
    assert word
    assert word != "GELU"
    assert word not in ("GELU", "SiLU")
    assert isinstance(word, str)
    assert f"{word}" == "[ReLU Tanh ReLU]"
    assert copy.deepcopy(word) is word
