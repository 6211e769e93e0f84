"""`float`, `int`, `max`, `min` and `math` in the user's module, for numbers that differ by lane.

Python insists that `float(x)` gives a real float, so no class can answer it lane by lane. While a group runs, the names
stand in the user's module for versions that can, if the module does nothing with them but call them. They are taken
away again when the last run ends; several may go on at once, each in a thread of its own.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial, wraps
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any

import torch.nn.utils.clip_grad as clipping
from torch import Tensor

from headwater.fuse.functorch import is_lane_tensor, stack_of
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.trials import Recipe

NAMES = ("float", "int", "max", "min", "math")


_ROSTER: ContextVar[Roster | None] = ContextVar("roster", default=None)
"""Whose lanes this thread runs; in one without lanes, the lifted names do what the plain ones do."""


@contextmanager
def lifted_names(function: Callable[..., Any], roster: Roster) -> Iterator[None]:
    """Let the names of `NAMES` work lane by lane in the function's module, and in torch's gradient clipping."""
    homes = [(vars(clipping), frozenset({"float"}))]
    plain = _plain_function(function)
    if plain is not None:
        homes.append((plain.__globals__, _only_called(inspect.getmodule(plain))))
    names = [(home, name) for home, names in homes for name in names if LIFTS.open(home, name)]
    before = _ROSTER.set(roster)
    try:
        yield
    finally:
        _ROSTER.reset(before)
        for home, name in names:
            LIFTS.close(home, name)


class Lifts:
    """Counts for each name in each module how many groups want it lifted, and keeps it so as long as there is one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_open: Counter[tuple[int, str]] = Counter()

    def open(self, home: dict[str, Any], name: str) -> bool:
        """Lift the name, unless the module has a meaning of its own for it; return whether it is lifted."""
        with self._lock:
            key = (id(home), name)
            if not self._num_open[key]:
                if home.get(name) is not (math if name == "math" else None):
                    return False
                home[name] = _LiftedMath() if name == "math" else _lift(getattr(builtins, name))
            self._num_open[key] += 1
            return True

    def close(self, home: dict[str, Any], name: str) -> None:
        """Take the lifted name away, if this was the last group that wanted it."""
        with self._lock:
            self._num_open[id(home), name] -= 1
            if self._num_open[id(home), name]:
                return
            if name == "math":
                home[name] = math
            else:
                home.pop(name, None)


LIFTS = Lifts()
"""One for the process, as the modules are there once for the process."""


class _LiftedMath:
    """The module `math`, lane by lane."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(math, name)
        return _lift(value) if callable(value) else value


def _lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of numbers work lane by lane where one of its arguments differs by lane."""

    @wraps(function)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        roster = _ROSTER.get()
        if roster is None:
            return function(*args, **kwargs)
        numbers = [_read(arg, roster) for arg in args]
        if not any(_differs(number) for number in numbers):
            return function(*args, **kwargs)
        values = [function(*_pick(numbers, lane), **kwargs) for lane in range(len(roster))]
        return PerLane(values, roster, _recipe(function, numbers, kwargs))

    return lifted


def _read(arg: Any, roster: Roster) -> Any:
    """Take numbers out of lane tensors, also in a list."""
    if isinstance(arg, Tensor) and is_lane_tensor(arg) and arg.numel() == 1:
        return PerLane(stack_of(arg).reshape(-1).tolist(), roster)
    if isinstance(arg, list | tuple):
        return [_read(item, roster) for item in arg]
    return arg


def _differs(number: Any) -> bool:
    return isinstance(number, PerLane) or (isinstance(number, list) and any(_differs(item) for item in number))


def _pick(number: Any, lane: int) -> Any:
    if isinstance(number, PerLane):
        return number.values[lane]
    return [_pick(item, lane) for item in number] if isinstance(number, list) else number


def _recipe(function: Callable[..., Any], numbers: list[Any], kwargs: Mapping[str, Any]) -> Recipe | None:
    """Write down how the answer follows from the configuration, if everything in it does."""
    if not all(isinstance(number, PerLane) and number.recipe is not None for number in numbers if _differs(number)):
        return None
    recipes = [number.recipe if isinstance(number, PerLane) else None for number in numbers]
    labels = [recipe.label if recipe else repr(number) for recipe, number in zip(recipes, numbers, strict=True)]

    def evaluate(config: Any) -> Any:
        pairs = zip(recipes, numbers, strict=True)
        return function(*(recipe.evaluate(config) if recipe else number for recipe, number in pairs), **kwargs)

    return Recipe(f"{function.__name__}({', '.join(labels)})", evaluate)


def _plain_function(function: Any) -> FunctionType | None:
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, FunctionType):
        function = vars(type(function)).get("__call__")
    return function if isinstance(function, FunctionType) else None


@cache
def _only_called(module: ModuleType | None) -> frozenset[str]:
    """Return those of `NAMES` that the module's code only ever calls (`math`: only reads attributes of)."""
    try:
        tree = ast.parse(inspect.getsource(module)) if module else None
    except (OSError, TypeError, SyntaxError):
        tree = None
    if tree is None:
        return frozenset()
    annotations = {id(node) for root in ast.walk(tree) for part in _annotations(root) for node in ast.walk(part)}
    called = {id(_function_of(node)) for node in ast.walk(tree)}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in NAMES]
    spoilt = {node.id for node in uses if id(node) not in called and id(node) not in annotations}
    return frozenset(node.id for node in uses) - spoilt


def _function_of(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call):
        return node.func
    return node.value if isinstance(node, ast.Attribute) else None


def _annotations(node: ast.AST) -> list[ast.AST]:
    found = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [part for part in found if part is not None]
