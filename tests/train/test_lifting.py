"""`float`, `int`, `max`, `min` and `math` in the user's module go lane by lane while a group runs, and only then."""

from __future__ import annotations

import builtins
import math
from functools import partial
from typing import Any

import pytest
from tests.train import user_module, user_module_with_types
from tests.train.lab import run
from torch import nn

from headwater.errors import LanesPart
from headwater.fuse.lifting import lifted_names
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.trials import Outcome, Recipe

ROSTER = Roster([{"x": 2.5}, {"x": 4.0}])


def x_of(config: Any) -> Any:
    return config["x"]


def per_lane() -> PerLane:
    return PerLane([2.5, 4.0], ROSTER, Recipe("x", x_of))


def test_the_names_work_lane_by_lane() -> None:
    with lifted_names(user_module.compute, ROSTER):
        found = user_module.compute(per_lane(), 3)
    assert {name: value.values for name, value in found.items() if isinstance(value, PerLane)} == {
        "float": (2.5, 4.0),
        "int": (2, 4),
        "max": (3, 4.0),
        "max of a list": (3, 4.0),
        "min": (2, 2),
        "sqrt": (math.sqrt(2.5), 2.0),
        "power": (6.25, 16.0),
    }
    assert found["pi"] == math.pi


def test_plain_numbers_go_the_plain_way() -> None:
    with lifted_names(user_module.compute, ROSTER):
        found = user_module.compute(2.5, 3)
    assert found == user_module.compute(2.5, 3)
    assert type(found["int"]) is int


def test_the_answer_follows_from_the_configuration() -> None:
    with lifted_names(user_module.compute, ROSTER):
        answer = user_module.compute(per_lane(), 3)["int"]
    assert answer.recipe is not None
    assert answer.recipe.label == "int(x)"
    assert answer.recipe.evaluate({"x": 7.9}) == 7


def test_the_names_are_restored() -> None:
    with lifted_names(user_module.compute, ROSTER):
        assert vars(user_module)["math"] is not math
    assert vars(user_module)["math"] is math
    assert not {"float", "int", "max", "min"} & vars(user_module).keys()
    assert "float" not in vars(nn.utils.clip_grad)


def test_the_names_are_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), lifted_names(user_module.compute, ROSTER):
        raise ZeroDivisionError
    assert vars(user_module)["math"] is math
    assert "float" not in vars(user_module)


def test_outside_of_a_group_one_value_is_asked_for() -> None:
    with pytest.raises(LanesPart):
        user_module.compute(per_lane(), 3)


def test_names_that_are_more_than_called_are_left_alone() -> None:
    with lifted_names(user_module_with_types.to_float, ROSTER):
        assert "float" not in vars(user_module_with_types)
        assert user_module_with_types.is_float(1.0)
        with pytest.raises(LanesPart):
            user_module_with_types.to_float(per_lane())


def test_annotations_are_no_obstacle() -> None:
    with lifted_names(user_module_with_types.to_int, ROSTER):
        assert user_module_with_types.to_int(per_lane()).values == (2, 4)


@pytest.mark.parametrize(
    "function",
    [partial(user_module.compute, y=3), user_module.Caller(), user_module.Caller().method],
    ids=["partial", "object", "method"],
)
def test_a_function_in_any_form_has_its_module_found(function: Any) -> None:
    with lifted_names(function, ROSTER):
        assert "float" in vars(user_module)
    assert "float" not in vars(user_module)


def test_a_function_without_source_is_run_as_it_is() -> None:
    scope: dict[str, Any] = {}
    exec("def train(trial): return float(trial)", scope)  # noqa: S102 - a function as a notebook or a shell makes it
    with lifted_names(scope["train"], ROSTER):
        assert scope["train"](1) == 1.0
    with lifted_names(len, ROSTER):
        pass


def test_a_name_of_the_users_own_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*numbers: float) -> str:
        return "mine"

    monkeypatch.setattr(user_module, "max", own, raising=False)
    with lifted_names(user_module.compute, ROSTER):
        assert user_module.compute(1, 2)["max"] == "mine"
    assert vars(user_module)["max"] is own


def test_builtins_are_never_touched() -> None:
    before = builtins.float
    with lifted_names(user_module.compute, ROSTER):
        assert builtins.float is before


def test_a_group_reads_its_tensors_lane_by_lane() -> None:
    done = run(user_module.train, [{"x": 4}, {"x": 9}])
    assert done.outcome is Outcome.DONE, done.ending
    assert [done.notes.history(number, "best") for number in (0, 1)] == [[4.0], [9.0]]
    assert [done.notes.history(number, "root") for number in (0, 1)] == [[2.0], [3.0]]
