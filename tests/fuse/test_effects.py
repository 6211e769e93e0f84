"""The closed table: every function that computes leaves its arguments as they are, and gives the same answer again."""

from __future__ import annotations

import copy
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats  # noqa: F401 - the table has functions of modules that are imported
import sklearn.metrics

from headwater.fuse.effects import ARRAY_METHODS, Effect, find_effect, list_functions, writes_arrays

TEXT = (Path(__file__).parents[2] / "docs" / "lanes.md").read_text()
NUMBERS = [0.5, 0.25, 0.75, 1.0]
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
LABELS = np.array([0, 1, 1, 0])
SCORES = np.array([0.2, 0.9, 0.6, 0.4])
GUESSES: list[tuple[Any, ...]] = [
    (0.5,), (4,), (0.5, 2.0), (6, 4), (NUMBERS,), ([1, 2, 3],), (NUMBERS, NUMBERS[::-1]), ("a-b c",), ("a", "a-b a"),
    ("a", "b", "a-b a"), (NUMBERS, 2), (NUMBERS, 0.5), (NUMBERS, [0, 1]), (MATRIX,), (MATRIX, MATRIX), (MATRIX, 1),
    (MATRIX, 0, 1), ([MATRIX, MATRIX],), (NUMBERS, [0.0, 0.5, 1.0]), (NUMBERS, 0.1, 0.6), (LABELS, SCORES),
    (LABELS, LABELS[::-1]), ([LABELS], [SCORES]), ("%d", 3), ((0.5, -1, ""),), ({"a": [1, 2]},), ('{"a": 1}',),
    (LABELS == 1, NUMBERS), (np.zeros((2, 2, 2)),), ([0, 1], (2, 2)), (NUMBERS, 1, 0.0), (3, 3), (0.1, 10.0, 3),
    (np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])), ("ij,jk->ik", MATRIX, MATRIX), ((2, 2), 1.0),
    (MATRIX, LABELS[:2].reshape(2, 1), 1), ([LABELS == 1, LABELS == 0], [LABELS, LABELS + 1]),
    (1, [1.0, 2.0], [3.0, 4.0]), (0.5, [0.0, 1.0], [1.0, 2.0]), (np.array([1.0]), [np.array([1.0])], [np.array([2.0])]),
    (np.eye(4).reshape(2, 2, 2, 2),), (np.eye(4).reshape(2, 2, 2, 2), MATRIX),
    ("a",), (np.zeros((2, 2, 2)), 2), (NUMBERS, NUMBERS[::-1], 1), (NUMBERS, (2, 2)),
]  # fmt: skip
"""Arguments of many kinds; a function is called with all that it takes."""


def list_computing() -> Iterator[Any]:
    for effect in (Effect.COMPUTE, Effect.ARRAYS):
        for home, name, function in list_functions(effect):
            yield pytest.param(function, id=f"{home}.{name}")


def call_all(function: Callable[..., Any], given: list[Any]) -> tuple[list[str], int]:
    """Call a function with all arguments that it takes; return its answers as text, and their number."""
    answers, num_taken = [], 0
    options = {"beta": 2.0} if function is sklearn.metrics.fbeta_score else {"width": 8} if function is shorten else {}
    for args in given:
        if writes_arrays(function, args, options):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answers.append(repr(function(*args, **options)))
            num_taken += 1
        except Exception as error:
            answers.append(type(error).__name__)
    return answers, num_taken


@pytest.mark.parametrize("function", [*list_computing()])
def test_a_function_that_computes_leaves_its_arguments_and_answers_alike(function: Callable[..., Any]) -> None:
    given = copy.deepcopy(GUESSES)
    first, num_taken = call_all(function, given)
    second, _ = call_all(function, given)
    assert num_taken > 0, "no arguments of this table fit"
    assert repr(given) == repr(GUESSES)
    if function is not id and not function.__name__.startswith("empty"):
        assert first == second


@pytest.mark.parametrize("name", sorted(ARRAY_METHODS))
def test_a_method_of_an_array_that_computes_leaves_the_array(name: str) -> None:
    array = np.array([[0.75, 0.25], [0.5, 1.0]])
    call_all(getattr(array, name), [(), (0,), (1,), ([0, 1],), ("int",), (0.3, 0.6), (0, 1)])
    assert array.tolist() == [[0.75, 0.25], [0.5, 1.0]]


@pytest.mark.parametrize("name", ["fill", "put", "sort", "partition", "resize", "byteswap", "setfield", "setflags"])
def test_a_method_that_changes_its_array_is_not_in_the_table(name: str) -> None:
    assert find_effect(getattr(np.zeros(3), name)) is None


@pytest.mark.parametrize("name", ["copyto", "put", "place", "putmask", "fill_diagonal", "vectorize", "frompyfunc"])
def test_a_function_of_numpy_that_writes_or_calls_is_not_in_the_table(name: str) -> None:
    assert find_effect(getattr(np, name)) is None


@pytest.mark.parametrize("function", [operator.is_, operator.is_not])
def test_a_function_that_asks_for_identity_is_not_in_the_table(function: Callable[..., Any]) -> None:
    """Called once, it would compare the object that stands for all lanes."""
    assert find_effect(function) is None


def test_a_ufunc_that_adds_into_its_argument_is_not_in_the_table() -> None:
    assert find_effect(np.add.at) is None
    assert find_effect(np.add.reduce) is Effect.ARRAYS


def test_every_function_that_can_write_into_an_array_is_seen_to_by_position_and_name() -> None:
    array = np.zeros(3)
    for _, _, function in list_functions(Effect.ARRAYS):
        try:
            parameters = [*inspect.signature(function).parameters]
        except ValueError:
            continue
        if "out" in parameters:
            assert writes_arrays(function, (), {"out": array}), function
            place = parameters.index("out")
            kind = inspect.signature(function).parameters["out"].kind
            if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                assert writes_arrays(function, (array,) * (place + 1), {}), function


def test_the_page_on_lanes_names_every_module_of_the_table() -> None:
    homes = {home for effect in Effect for home, _, _ in list_functions(effect)}
    assert [home for home in homes - {"headwater.trials.functions", "_pickle"} if f"`{home}" not in TEXT] == []
