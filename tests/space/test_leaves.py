"""Whatever is malformed in a space is refused with its key, its value and the cure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from random import Random
from typing import Any  # Any: malformed on purpose

import pytest

from headwater.errors import SpaceError
from headwater.space import Config, Space, choice, grid, loguniform, qloguniform, quniform, randint, uniform

Bad = Any  # Any: what the signatures forbid is what users pass
NOT_A_NUMBER: Bad = "1"


class Net:
    """Some class of the user's."""


def needs_two(config: Config, extra: int) -> int:
    return extra


def needs_none() -> int:
    return 1


MALFORMED: dict[str, tuple[Bad, str, str]] = {
    "bounds in the wrong order": (uniform(3, 1), "uniform(3, 1)", "smaller number first"),
    "equal bounds": (loguniform(1, 1), "loguniform(1, 1)", "a plain value for a constant"),
    "empty range of integers": (randint(4, 4), "randint(4, 4)", "smaller number first"),
    "nan": (uniform(math.nan, 1), "low is nan", "finite number"),
    "infinity": (uniform(0, math.inf), "high is inf", "finite number"),
    "an int beyond all floats": (uniform(0, 10**400), "high is 1000", "finite number"),
    "infinite step": (quniform(0, 1, math.inf), "q is inf", "finite number"),
    "bool as a bound": (uniform(True, 2), "low is True, a bool", "give a number"),
    "string as a bound": (uniform(0, NOT_A_NUMBER), "high is '1', a str", "give a number"),
    "None as a bound": (randint(0, None), "high is None", "give a number"),  # type: ignore[arg-type]  # on purpose
    "log of zero": (loguniform(0, 1), "low is 0", "raise it above 0, or use uniform"),
    "log of a negative number": (qloguniform(-1, 1, 0.1), "low is -1", "raise it above 0, or use quniform"),
    "step of zero": (quniform(0, 1, 0), "q is 0", "step above 0"),
    "negative step": (qloguniform(1, 10, -1), "q is -1", "step above 0"),
    "step beyond the range": (quniform(0, 1, 2), "q 2 is larger than the range from 0 to 1", "lower q"),
    "fractional integer bounds": (randint(0, 2.5), "high is 2.5", "give an int"),  # type: ignore[arg-type]  # on purpose
    "no choices": (choice([]), "choice([])", "at least one value"),
    "no grid": (grid([]), "grid([])", "at least one value"),
    "string for a list": (choice("sgd"), "choice('sgd')", "write choice(['sgd'])"),
    "number for a list": (grid(5), "grid(5)", "write grid([...])"),  # type: ignore[arg-type]  # on purpose
    "dictionary for a list": (choice({"a": 1}), "choice({'a': 1})", "write choice([...])"),
    "set for a list": (choice({7}), "choice({7})", "give a list"),
    "the same choice twice": (choice([1, 2, 1]), "1 is given twice", "leave one out"),
    "equal lists": (grid([[1], [1]]), "[1] is given twice", "leave one out"),
    "a domain among choices": (choice([uniform(0, 1), 3]), "uniform(0, 1)", "function of the configuration"),
    "a domain in a list": ([1, uniform(0, 1)], "low=0", "a key of its own"),
    "a domain in a dictionary in a list": ([{"a": uniform(0, 1)}], "low=0", "a key of its own"),
    "a class": (Net, "the class Net", "choice([Net])"),
    "a function of two arguments": (needs_two, "needs_two(config", "one argument, the configuration"),
    "a function of no argument": (needs_none, "needs_none()", "one argument, the configuration"),
    "a domain that was not called": (uniform, "uniform(low", "one argument, the configuration"),
    "an empty dictionary": ({}, "an empty dictionary", "at least one key"),
    "a space": (Space({"a": 1}), "Space(a: 1)", "nest the dictionary"),
}


@pytest.mark.parametrize(("value", "shown", "cure"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_values_are_refused_with_key_value_and_cure(value: object, shown: str, cure: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space({"fine": uniform(0, 1), "outer": {"inner": value}})
    message = str(caught.value)
    assert "'outer.inner'" in message
    assert shown in message
    assert cure in message


@pytest.mark.parametrize("name", [1, None, ("a",), "", "a.b"])
def test_keys_are_names_without_dots(name: object) -> None:
    with pytest.raises(SpaceError, match="use a name without dots") as caught:
        Space({"outer": {name: 1}})
    assert f"'outer' has the key {name!r}" in str(caught.value)


@pytest.mark.parametrize("definition", [[("lr", 1)], None, "lr", uniform(0, 1)], ids=repr)
def test_a_space_is_a_dictionary(definition: Bad) -> None:
    with pytest.raises(SpaceError, match="give a dictionary such as") as caught:
        Space(definition)
    assert repr(definition) in str(caught.value)


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(SpaceError, match="the space is an empty dictionary; give it at least one key"):
        Space({})


def divide_by_zero(config: Config) -> float:
    return float(config["lr"]) / 0


RAISING: dict[str, tuple[Callable[[Config], object], str, str]] = {
    "raises": (divide_by_zero, "divide_by_zero raised ZeroDivisionError", "here lr=1"),
    "reads a missing key": (lambda config: config["learning_rate"], "KeyError: 'learning_rate'", "here lr=1"),
    "reads a condition below it": (lambda config: config["later"], "KeyError: 'later'", "conditions above it"),
    "changes the configuration": (lambda config: config.update(lr=2), "cannot be changed", "can read"),  # type: ignore[attr-defined]  # on purpose
    "is itself the value": (math.sqrt, "sqrt raised TypeError", "choice([...])"),  # type: ignore[dict-item]  # on purpose
}
NONSENSE: dict[str, tuple[Callable[[Config], object], str, str]] = {
    "returns a malformed domain": (lambda config: uniform(config["lr"], 0), "uniform(1, 0)", "smaller number first"),
    "returns a dictionary": (lambda config: {"a": 1}, "{'a': 1}", "nested dictionary"),
    "hides a domain": (lambda config: (uniform(0, 1),), "low=0", "a key of its own"),
}


@pytest.mark.parametrize(("condition", "shown", "cure"), RAISING.values(), ids=RAISING.keys())
def test_a_condition_that_raises_is_named_and_chained(
    condition: Callable[[Config], object], shown: str, cure: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        Space({"lr": 1, "outer": {"inner": condition}, "later": lambda config: 1})
    assert caught.value.__cause__ is not None
    message = str(caught.value)
    assert all(part in message for part in ("'outer.inner'", shown, cure))


@pytest.mark.parametrize(("condition", "shown", "cure"), NONSENSE.values(), ids=NONSENSE.keys())
def test_a_condition_that_returns_nonsense_is_named(
    condition: Callable[[Config], object], shown: str, cure: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        Space({"lr": 1, "outer": {"inner": condition}})
    message = str(caught.value)
    assert all(part in message for part in ("'outer.inner'", shown, cure))


def test_a_condition_that_fails_only_later_is_named_then() -> None:
    calls: list[int] = []

    def fail_late(config: Config) -> int:
        calls.append(1)
        return 1 // max(0, 17 - len(calls))

    space = Space({"inner": fail_late})
    with pytest.raises(SpaceError, match="space key 'inner': its condition fail_late raised ZeroDivisionError"):
        space.sample(Random(0))


def test_conditions_may_be_any_callable_of_one_argument() -> None:
    space = Space({"lr": 2, "twice": functools.partial(lambda factor, config: factor * config["lr"], 2)})
    assert next(space.configurations()) == {"lr": 2, "twice": 4}
