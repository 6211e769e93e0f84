"""The configuration of a group reads like one trial's; lanes part where it cannot."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.errors import LanesPart
from headwater.fuse.per_lane import PerLane, PerLaneText, PerLaneThing, same
from headwater.fuse.roster import Roster
from headwater.space.configuration import freeze
from headwater.train.config import LaneConfig


def open_config(*configs: Mapping[str, Any]) -> LaneConfig:
    return LaneConfig(Roster(configs))


def open_asked(*configs: Mapping[str, Any]) -> tuple[LaneConfig, Roster]:
    roster = Roster(configs)
    return LaneConfig(roster), roster


def answers(roster: Roster) -> list[Any]:
    """Return what the lanes were asked for, by their configurations."""
    assert roster.question is not None
    assert roster.question.recipe is not None
    return [roster.question.recipe.evaluate(config) for config in roster.configs]


@pytest.mark.parametrize("value", [1, 0.5, "relu", True, None, (1, 2)])
def test_a_value_on_which_lanes_agree_is_that_value(value: Any) -> None:
    read = open_config({"a": value}, {"a": value})["a"]
    assert read == value
    assert type(read) is type(value)


def test_numbers_that_differ_are_per_lane() -> None:
    lr = open_config({"lr": 0.1}, {"lr": 0.2})["lr"]
    assert type(lr) is PerLane
    assert lr.values == (0.1, 0.2)


@pytest.mark.parametrize(
    ("one", "other"), [("relu", "gelu"), (True, False), ((1, 2), (1, 3)), (int, float), (max, min), (b"a", b"b")]
)
def test_lanes_part_where_anything_else_that_differs_is_read(one: Any, other: Any) -> None:
    config, roster = open_asked({"a": one}, {"a": other})
    with pytest.raises(LanesPart):
        config["a"]
    assert answers(roster) == [one, other]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), (0, False), (None, 3), ("a", 1), ({"b": 1}, 3)])
def test_lanes_part_by_the_type_where_it_differs(one: Any, other: Any) -> None:
    config, roster = open_asked({"a": one}, {"a": other}, {"a": other})
    with pytest.raises(LanesPart):
        config["a"]
    assert answers(roster) == [type(one).__name__, type(other).__name__, type(other).__name__]


def test_what_is_taken_by_lane_is_handed_out() -> None:
    config = open_config({"a": "x", "b": None, "c": {"d": True}}, {"a": "y", "b": 3, "c": {"d": False}}).keeping()
    assert type(config["a"]) is PerLaneText
    assert type(config["b"]) is PerLaneThing
    assert config["c"]["d"].values == (True, False)


@pytest.mark.parametrize("value", [0.0, (1, 2), [1], {"k": 1}])
def test_equal_values_are_told_apart_where_python_can(value: Any) -> None:
    other = {float: -0.0, tuple: (1.0, 2), list: [True], dict: {"k": 1.0}}[type(value)]
    assert not same(value, other)
    assert same(value, copy.deepcopy(value))


@pytest.mark.parametrize("ask", [repr, str, copy.copy, copy.deepcopy, pickle.dumps, dict, hash])
def test_a_configuration_alone_and_one_of_many_lanes_answer_alike(ask: Any) -> None:
    roster = Roster([{"a": 1}, {"a": 1}])
    with roster.running():
        assert _result_of(ask, LaneConfig(roster)) == _result_of(ask, freeze({"a": 1}))


def _result_of(ask: Any, config: Any) -> Any:
    try:
        return ask(config)
    except TypeError:
        return TypeError


def test_a_nested_section_reads_like_a_configuration() -> None:
    config = open_config({"net": {"width": 8, "depth": 2}}, {"net": {"width": 8, "depth": 3}})
    assert config["net"]["width"] == 8
    assert config["net"]["depth"].values == (2, 3)
    assert config["net"]["depth"].recipe.label == "net.depth"
    assert list(config["net"]) == ["width", "depth"]


def test_a_recipe_tells_the_value_from_any_trials_configuration() -> None:
    depth = open_config({"net": {"depth": 2}}, {"net": {"depth": 3}})["net"]["depth"]
    assert depth.recipe.evaluate({"net": {"depth": 9}}) == 9


def test_a_key_that_no_lane_has_is_missing() -> None:
    config = open_config({"a": 1}, {"a": 2})
    assert "b" not in config
    assert config.get("b", 7) == 7
    with pytest.raises(KeyError, match="b"):
        config["b"]


@pytest.mark.parametrize(
    "ask", [lambda config: config["b"], lambda config: config.get("b"), lambda config: "b" in config]
)
def test_lanes_part_by_a_key_that_only_some_of_them_have(ask: Any) -> None:
    config, roster = open_asked({"a": 1}, {"a": 1, "b": 2})
    with pytest.raises(LanesPart):
        ask(config)
    assert answers(roster) == [False, True]


def test_keys_are_listed_in_order() -> None:
    config = open_config({"b": 1, "a": 2}, {"b": 1, "a": 3})
    assert list(config) == ["b", "a"]
    assert len(config) == 2
    assert [key for key, _ in config.items()] == ["b", "a"]
    assert dict(**config).keys() == {"b", "a"}


def test_lanes_part_where_their_keys_are_listed_and_differ() -> None:
    config, roster = open_asked({"a": 1}, {"a": 1, "b": 2})
    with pytest.raises(LanesPart):
        list(config)
    assert answers(roster) == [("a",), ("a", "b")]


def test_printing_shows_the_values_of_all_lanes() -> None:
    text = str(open_config({"lr": 0.1, "n": 3}, {"lr": 0.2, "n": 3}))
    assert "0.1" in text
    assert "0.2" in text
    assert "3" in text


def test_lanes_that_have_left_are_not_asked() -> None:
    config, roster = open_asked({"lr": 0.1, "n": 3}, {"lr": 0.2}, {"lr": 0.1, "n": 3})
    roster.narrow([0, 2])
    assert config["lr"] == 0.1
    assert config["n"] == 3
    assert list(config) == ["lr", "n"]


def test_a_value_kept_from_before_lanes_left_follows() -> None:
    config, roster = open_asked({"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3})
    lr = config["lr"]
    roster.narrow([0, 2])
    assert lr.values == (0.1, 0.3)
