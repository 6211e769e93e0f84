"""The configuration of a group reads like one trial's; lanes part where it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.errors import LanesPart
from headwater.fuse.per_lane import PerLane, PerLaneText, PerLaneThing
from headwater.fuse.roster import Roster
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


def test_words_that_differ_are_per_lane_text() -> None:
    name = open_config({"act": "relu"}, {"act": "gelu"})["act"]
    assert type(name) is PerLaneText
    assert name.values == ("relu", "gelu")


def test_other_things_that_differ_are_per_lane_things() -> None:
    assert type(open_config({"a": (1, 2)}, {"a": (1, 3)})["a"]) is PerLaneThing
    assert type(open_config({"a": None}, {"a": 3})["a"]) is PerLaneThing


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), (0, False)])
def test_equal_values_of_different_types_are_not_the_same(one: Any, other: Any) -> None:
    read = open_config({"a": one}, {"a": other})["a"]
    assert [type(value) for value in read.values] == [type(one), type(other)]


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


def test_lanes_part_by_a_section_that_only_some_of_them_have() -> None:
    config, roster = open_asked({"net": {"width": 3}}, {"net": 3})
    value = config["net"]
    with pytest.raises(LanesPart):
        value["width"]
    assert answers(roster) == [{"width": 3}, 3]


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
