"""`float`, `int`, `max`, `min` and `math` in the user's module, for numbers that differ by lane.

Python insists that `float(x)` gives a real float, so no class can answer it lane by lane. While a group runs, the names
stand in the user's module for versions that can, if the module does nothing with them but call them. They are taken
away again when the run ends.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, wraps
from types import FunctionType, ModuleType
from typing import Any

import torch.nn.utils.clip_grad as clipping
from torch import Tensor

from headwater.fuse.functorch import is_lane_tensor, stack_of
from headwater.fuse.per_lane import PerLane
from headwater.fuse.roster import Roster
from headwater.trials import Recipe

NAMES = ("float", "int", "max", "min", "math")


@contextmanager
def lifted_names(function: Callable[..., Any], roster: Roster) -> Iterator[None]:
    """Let the names of `NAMES` work lane by lane in the function's module, and in torch's gradient clipping."""
    homes = [(vars(clipping), frozenset({"float"}))]
    plain = _plain_function(function)
    if plain is not None:
        homes.append((plain.__globals__, _only_called(inspect.getmodule(plain))))
    undo = [_put(home, name, roster) for home, names in homes for name in names]
    try:
        yield
    finally:
        for restore in undo:
            restore()


def _put(home: dict[str, Any], name: str, roster: Roster) -> Callable[[], None]:
    """Put the lifted name into a module, and return what takes it away again."""
    if name in home:
        if name != "math" or home[name] is not math:
            return lambda: None
        before = home[name]
        home[name] = _LiftedMath(roster)
        return lambda: home.__setitem__(name, before)
    if name == "math":
        return lambda: None
    home[name] = _lift(getattr(builtins, name), roster)
    return lambda: home.pop(name, None) and None


class _LiftedMath:
    """The module `math`, lane by lane."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def __getattr__(self, name: str) -> Any:
        value = getattr(math, name)
        return _lift(value, self._roster) if callable(value) else value


def _lift(function: Callable[..., Any], roster: Roster) -> Callable[..., Any]:
    """Make a function of numbers work lane by lane where one of its arguments differs by lane."""

    @wraps(function)
    def lifted(*args: Any, **kwargs: Any) -> Any:
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
