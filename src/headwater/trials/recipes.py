"""How values follow from a configuration, as data: keys, constants, and calls of functions on these."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.space import Config
from headwater.trials.constants import NO_OPTIONS, Json, Options, name_option, read_constant, write_constant
from headwater.trials.functions import CALLED, Function, allows, find_function, find_name


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """What the configuration holds at the end of this way; without a way, the configuration itself."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """The same for every configuration."""

    value: Any  # Any: whatever the code computes with


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What a function gives for these."""

    function: Function
    args: tuple[Expression, ...]
    keywords: tuple[str, ...] = ()
    """Names of the last of the arguments."""


Expression: TypeAlias = Key | Constant | Call


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a value follows from a trial's configuration, so that lanes can be sorted by it before they start.

    It can be written as JSON as far as its functions are those of `trials/functions.py` and its constants plain, or
    options of the space. Any other recipe serves in the process where it was made.
    """

    label: str
    source: Expression
    asks_failure: bool = False
    """Whether it gives the name of what computing the value raises, or nothing, instead of the value."""

    def evaluate(self, config: Config) -> Any:
        """Return the value for a trial of this configuration."""
        if not self.asks_failure:
            return _compute(self.source, config)
        try:
            _compute(self.source, config)
        except Exception as error:  # whatever the user's values make of it
            return type(error).__name__
        return ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recipe):
            return NotImplemented
        return self.label == other.label and self._text == other._text

    def __hash__(self) -> int:
        return hash(self.label)

    @property
    def _text(self) -> str:
        return json.dumps(self._write(lambda value: ["object", id(value)]))

    def is_portable(self, options: Options = NO_OPTIONS) -> bool:
        """Tell whether another process, with the same options in its space, can have it as data."""
        return self.to_json(options) is not None

    def to_json(self, options: Options = NO_OPTIONS) -> Json:
        """Return it as a JSON value; None where it cannot be one."""
        try:
            return self._write(name_option(options))
        except (ValueError, RecursionError):  # the latter of constants
            return None

    @classmethod
    def from_json(cls, data: Json, options: Options = NO_OPTIONS) -> Recipe | None:
        """Return what `to_json` gave, or None for anything else; nothing of it is run."""
        try:
            match data:
                case {"label": str(label), "asks_failure": bool(asks_failure), "steps": list(steps)} if steps:
                    return cls(label, _read(steps, options), asks_failure)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        return None

    def _write(self, name_other: Callable[[Any], Json]) -> Json:
        steps = _list_steps(self.source)
        places = {id(step): place for place, step in enumerate(steps)}
        written = [_write_step(step, places, name_other) for step in steps]
        return {"label": self.label, "asks_failure": self.asks_failure, "steps": written}


def _list_steps(source: Expression) -> list[Expression]:
    """Return all parts, each once and before those that are made of it; there may be too many to recurse."""
    done: dict[int, Expression] = {}
    stack = [source]
    while stack:
        step = stack[-1]
        parts = step.args if isinstance(step, Call) else ()
        waiting = [part for part in parts if id(part) not in done]
        if waiting:
            stack += reversed(waiting)
        else:
            done.setdefault(id(stack.pop()), step)
    return [*done.values()]


def _compute(source: Expression, config: Config) -> Any:
    values: dict[int, Any] = {}
    for step in _list_steps(source):
        values[id(step)] = _compute_step(step, values, config)
    return values[id(source)]


def _compute_step(step: Expression, values: dict[int, Any], config: Config) -> Any:
    if isinstance(step, Constant):
        return step.value
    if isinstance(step, Key):
        value: Any = config
        for key in step.path:
            value = value[key]
        return value
    given = [values[id(part)] for part in step.args]
    num_plain = len(given) - len(step.keywords)
    return step.function(*given[:num_plain], **dict(zip(step.keywords, given[num_plain:], strict=True)))


def _write_step(step: Expression, places: dict[int, int], name_other: Callable[[Any], Json]) -> Json:
    if isinstance(step, Constant):
        return ["constant", write_constant(step.value, name_other)]
    if isinstance(step, Key):
        return ["key", [*step.path]]
    name = find_name(step.function)
    if name is None or not _is_allowed(name, step):
        name = name_other(step.function)
    return ["call", name, [places[id(part)] for part in step.args], [*step.keywords]]


def _read(steps: Sequence[Json], options: Options) -> Expression:
    done: list[Expression] = []
    for step in steps:
        done.append(_read_step(step, done, options))
    return done[-1]


def _read_step(step: Json, done: Sequence[Expression], options: Options) -> Expression:
    match step:
        case ["constant", code]:
            return Constant(read_constant(code, options))
        case ["key", list(path)] if all(isinstance(key, str) for key in path):
            return Key(tuple(path))
        case ["call", str(name), list(places), list(keywords)]:
            args = tuple(done[_check_place(place)] for place in places)
            call = Call(find_function(name), args, tuple(map(str, keywords)))
            if len(keywords) <= len(places) and _is_allowed(name, call):
                return call
    raise ValueError(f"{step!r} is no step of a recipe")


def _check_place(place: Json) -> int:
    if type(place) is not int or place < 0:
        raise ValueError(f"{place!r} is no place of a step")
    return place


def _is_allowed(name: str, call: Call) -> bool:
    """Tell whether a function may be given what it is: what it calls has to be in the table too."""
    named = zip(reversed(call.keywords), reversed(call.args), strict=False)
    return all(
        allows(name, keyword) and (keyword not in CALLED or (isinstance(value, Constant) and _is_tame(value.value)))
        for keyword, value in named
    )


def _is_tame(value: Any) -> bool:
    return not callable(value) or find_name(value) is not None
