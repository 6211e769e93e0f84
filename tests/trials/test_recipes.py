"""Recipes are values: expressions over a configuration that can be text, and nothing that is read runs code."""

from __future__ import annotations

import enum
import json
import math
import operator
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.train.recipes import require_round_trip

from headwater.space import Space, choice
from headwater.trials import Recipe
from headwater.trials.constants import name_option, read_constant, write_constant
from headwater.trials.functions import FUNCTIONS
from headwater.trials.recipes import Call, Constant, Expression, Key

CONFIGS: list[dict[str, Any]] = [{"lr": 0.1, "net": {"size": 8}}, {"lr": 0.3, "net": {"size": 16}}]
LR, SIZE = Key(("lr",)), Key(("net", "size"))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    "source",
    [
        LR, SIZE, Constant(3),
        Call(operator.mul, (Constant(2), LR)),
        Call(operator.gt, (Call(math.log10, (LR,)), Constant(-0.7))),
        Call(round, (LR, Constant(None))),
        Call(max, (LR, Constant(0.2))),
        Call(sorted, (Call(FUNCTIONS["make_list"], (LR, Constant(-0.2))), Constant(abs)), ("key",)),
        Call(max, (Constant([]), Constant(3)), ("default",)),
        Call(json.dumps, (Call(FUNCTIONS["make_list"], (LR, Constant(1j))), Constant(str)), ("default",)),
        Call(str.format, (Constant("{size:>4}"), SIZE), ("size",)),
        Call(operator.getitem, (Constant("abcdefgh" * 3), Call(FUNCTIONS["make_tuple"], (SIZE,)))),
        Call(isinstance, (SIZE, Constant((int, float)))),
        Call(type, (SIZE,)),
        Call(operator.contains, (Key(("net",)), Constant("size"))),
        Call(str, (Call(FUNCTIONS["read_section"], (Key(("net",)),)),)),
        Call(np.log, (LR,)),
        Call(np.mean, (Call(FUNCTIONS["make_list"], (LR, SIZE)), Constant(0)), ("axis",)),
        Call(operator.add, (LR, Constant(np.float32(0.1)))),
        Call(FUNCTIONS["join_pieces"], (Call(FUNCTIONS["make_tuple"], (SIZE, Constant(-1), Constant(""))),)),
        Key(("absent",)),
    ],
)  # fmt: skip
def test_a_recipe_survives_as_text(source: Expression) -> None:
    require_round_trip(Recipe("it", source), CONFIGS)


def test_a_recipe_of_what_is_raised_survives_as_text() -> None:
    recipe = Recipe("what it raises", Call(math.sqrt, (Call(operator.sub, (LR, Constant(0.2))),)), asks_failure=True)
    require_round_trip(recipe, CONFIGS)
    assert [recipe.evaluate(config) for config in CONFIGS] == ["ValueError", ""]


def test_recipes_are_equal_by_what_they_compute_and_not_by_what_they_are_made_of() -> None:
    def double(factor: Any) -> Recipe:
        return Recipe("twice", Call(operator.mul, (Key(("lr",)), Constant(factor))))

    assert double(2) == double(2)
    assert len({double(2), double(2), double(2.0), double(True)}) == 3
    assert double(2) != "twice"
    assert Recipe("it", Constant(Colour)) == Recipe("it", Constant(Colour))
    assert Recipe("it", Constant(object())) != Recipe("it", Constant(object()))


def test_an_expression_may_be_longer_than_python_recurses() -> None:
    source: Expression = LR
    for _ in range(5 * sys.getrecursionlimit()):
        source = Call(operator.add, (source, Constant(1)))
    require_round_trip(Recipe("long", source), CONFIGS)


def test_an_expression_that_is_used_twice_is_written_once() -> None:
    source: Expression = LR
    for _ in range(64):
        source = Call(operator.add, (source, source))
    recipe = Recipe("doubled", source)
    assert len(recipe.to_json()["steps"]) == 65
    require_round_trip(recipe, CONFIGS)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -3, 2**100, 0.1, -0.0, math.inf, -math.inf, "", "a\0b", b"\x00a", 1 + 2j, [1, [2.0]], (1, (2,)),
        {"a": {1: 2}}, {1, "b"}, frozenset({3}), slice(1, None, -1), range(3), int, str, type(None), len, str.join,
        np.float32(0.1), np.int64(3), np.bool_(True), np.log, np.float32,
    ],
)  # fmt: skip
def test_constants_come_back_as_they_were(value: Any) -> None:
    back = read_constant(json.loads(json.dumps(write_constant(value, name_option({})), allow_nan=False)), {})
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("value", [object(), Colour.RED, Colour, lambda: 0, os.system, type, 1 << 5000, np.zeros(3)])
def test_what_neither_json_nor_the_space_has_stays_in_its_process(value: Any) -> None:
    assert Recipe("it", Constant(value)).to_json() is None
    assert not Recipe("it", Call(operator.eq, (LR, Constant([value])))).is_portable()


def test_options_of_the_space_are_told_by_their_place() -> None:
    space = Space({"lr": 0.1, "net": {"colour": choice([Colour.RED, Colour.BLUE]), "kind": choice([dict, Colour])}})
    recipe = Recipe("it", Call(operator.is_, (Key(("net", "colour")), Constant(Colour.BLUE))))
    assert not recipe.is_portable()
    assert recipe.to_json(space.options)["steps"][1] == ["constant", ["option", ["net.colour", 1]]]
    require_round_trip(recipe, [*space.configurations()], space.options)
    assert Recipe.from_json(recipe.to_json(space.options), {"net.colour": [Colour.RED]}) is None


def _steps(*steps: Any) -> dict[str, Any]:
    return {"label": "it", "asks_failure": False, "steps": list(steps)}


X, LIST = ["constant", "touch x"], ["call", "make_list", [0], []]


@pytest.mark.parametrize(
    "data",
    [
        None, 3, [], {}, {"label": "it"}, _steps(), _steps(["constant"]), _steps(["unknown", 1]),
        _steps(X) | {"label": 1},
        _steps(X, ["call", "os.system", [0], []]), _steps(X, ["call", "eval", [0], []]),
        _steps(X, ["call", "exec", [0], []]), _steps(X, ["call", "__import__", [0], []]),
        _steps(X, ["call", "builtins.eval", [0], []]),
        _steps(X, ["call", "math.os.system", [0], []]), _steps(X, ["call", "numpy.load", [0], []]),
        _steps(X, ["call", "numpy.f2py.os.system", [0], []]), _steps(X, ["call", "str.__class__", [0], []]),
        _steps(X, ["call", "getattr", [0, 0], []]), _steps(X, ["call", "open", [0], []]),
        _steps(X, ["call", ["option", ["f", 0]], [0], []]),
        _steps(["call", "str", [0], []]), _steps(X, ["call", "str", [1], []]), _steps(X, ["call", "str", [-1], []]),
        _steps(X, ["call", "str", [True], []]), _steps(X, ["call", "str", [0], ["a", "b"]]),
        _steps(X, LIST, ["constant", ["option", ["f", 0]]], ["call", "sorted", [1, 2], ["key"]]),
        _steps(X, LIST, ["key", ["f"]], ["call", "max", [1, 2], ["key"]]),
        _steps(X, ["key", ["f"]], ["call", "json.dumps", [0, 1], ["default"]]),
        _steps(X, ["constant", ["option", ["f", 0]]], ["call", "json.dumps", [0, 1], ["default"]]),
        _steps(X, ["key", ["f"]], ["call", "json.loads", [0, 1], ["object_hook"]]),
        _steps(["key", [1]]), _steps(["key", "lr"]), _steps(["constant", {"a": 1}]),
        _steps(["constant", ["object", 3]]),
        _steps(["constant", ["function", "eval"]]), _steps(["constant", ["scalar", ["numpy.load", "x"]]]),
        _steps(["constant", ["scalar", ["numpy.float32", "x"]]]), _steps(["constant", ["option", ["f", 7]]]),
        _steps(["constant", ["option", ["f", -1]]]), _steps(["constant", ["set", [["list", []]]]]),
        _steps(["constant", ["float", "one"]]), _steps(["constant", ["range", []]]),
        _steps(["constant", ["bytes", "x"]]),
    ],
)  # fmt: skip
def test_whatever_is_no_recipe_is_refused_quietly(data: Any) -> None:
    assert Recipe.from_json(data, {"f": [os.system]}) is None


def test_a_constant_nested_too_deep_is_refused_quietly() -> None:
    code: Any = 1
    for _ in range(2 * sys.getrecursionlimit()):
        code = ["list", [code]]
    assert Recipe.from_json(_steps(["constant", code])) is None


def test_what_was_read_makes_no_new_classes() -> None:
    made = _steps(
        ["constant", "Made"], ["constant", ["tuple", []]], ["constant", ["dict", []]], ["call", "type", [0, 1, 2], []]
    )
    recipe = Recipe.from_json(made)
    assert recipe is not None
    with pytest.raises(TypeError):
        recipe.evaluate({})


def test_recipes_need_neither_torch_nor_numpy() -> None:
    code = "import sys, headwater.trials.recipes; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
