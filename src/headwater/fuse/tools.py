"""What the user's code asks of Python and of libraries, answered for every lane: the tools of `fuse/syntax.py`."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

import torch.nn.utils.clip_grad as clipping
from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse.lifting import (
    ROSTER,
    STAND_INS,
    Function,
    guard,
    lift,
    log,
    name_attribute,
    own,
    show,
    store,
)
from headwater.fuse.per_lane import PerLane, PerLaneMapping
from headwater.fuse.rewriting import Rewrites, is_users_module
from headwater.fuse.roster import Roster
from headwater.trials.functions import fill_in, join_pieces

__all__ = [
    "answering",
    "go_on",
    "lanes",
    "of",
    "other_thing",
    "own",
    "remainder",
    "same_thing",
    "subject",
    "taking",
    "text",
]


@contextmanager
def answering(function: Function, roster: Roster) -> Iterator[None]:
    """Let the function, and what of the user's it calls, ask for every lane; so too torch's gradient clipping."""
    functions = REWRITES.open(function, *vars(clipping).values())
    before = ROSTER.set(roster)
    try:
        with roster.running():
            yield
    finally:
        ROSTER.reset(before)
        REWRITES.close(functions)


REWRITES = Rewrites(sys.modules[__name__])
"""One for the process, as functions are there once for the process."""


def go_on() -> None:
    """Raise where the lanes have to part: the code has caught what said so, or what came of it."""
    roster = ROSTER.get()
    if roster is not None and roster.halt is not None:
        raise LanesPart(roster.halt)


def same_thing(a: Any, b: Any) -> Any:
    """Answer `a is b`."""
    if a is b:
        return True
    if type(a) in STAND_INS or type(b) in STAND_INS:
        return lift(operator.is_, a, b)
    return False


def other_thing(a: Any, b: Any) -> Any:
    """Answer `a is not b`."""
    if type(a) in STAND_INS or type(b) in STAND_INS:
        return False if a is b else lift(operator.is_not, a, b)
    return a is not b


def subject(value: Any) -> Any:
    """Return what `match` is to look at: a plain truth, since `case True` is an `is`."""
    return value.one() if isinstance(value, PerLane) and bool in map(type, value.values) else value


def text(*pieces: Any) -> Any:
    """Return the text of an f-string: its words, and its values with their conversion and format."""
    return lift(join_pieces, *pieces)


def remainder(a: Any, b: Any) -> Any:
    """Answer `a % b`, where `a` may be a text to be filled in."""
    return lift(fill_in, a, b) if type(a) in (str, bytes) else a % b


def lanes(config: Any) -> Any:
    """Let a configuration hand out whatever differs by lane: it goes where that is known."""
    return config.keeping() if isinstance(config, PerLaneMapping) else config


def taking(function: Function) -> Function:
    """Return a method that takes whatever differs by lane, or what makes lanes part before they reach another one."""
    is_ours = getattr(function, "__module__", "") == "headwater.train.trial"
    return function if is_ours else partial(_resolve, function)


def _resolve(function: Function, *args: Any, **kwargs: Any) -> Any:
    return of(function)(*map(own, args), **{key: own(value) for key, value in kwargs.items()})


def of(function: Any) -> Function:
    """Return the function, or what is to be called in its place."""
    kind = type(function)
    if kind is FunctionType:
        way = _way_of_function(function)
    elif kind is MethodType:
        way = _ways(getattr(function.__func__, "__module__", None))
    elif kind is BuiltinFunctionType:
        way = _way_of_builtin(function)
    elif isinstance(function, nn.Module):
        return function
    elif isinstance(function, type):
        way = _BUILTINS.get(function) if function.__module__ == "builtins" else _ways(function.__module__)
    elif kind is MethodDescriptorType:
        way = lift if function.__objclass__ in _IMMUTABLE else None
    elif kind is partial:
        return function if of(function.func) is function.func else partial(guard, function)
    else:
        way = _ways(kind.__module__)
    return function if way is None else partial(way, function)


def _way_of_function(function: FunctionType) -> Function | None:
    way = _ways(function.__module__)
    return show if way is guard and function is builtins.print else way  # Ray, for one, has its own `print`


def _way_of_builtin(function: Any) -> Function | None:
    owner = function.__self__
    if owner is None or type(owner) is ModuleType:
        return _BUILTINS.get(function, guard) if owner is builtins else _ways(function.__module__)
    kind = owner if isinstance(owner, type) else type(owner)
    if kind in _IMMUTABLE:
        return lift
    if kind.__module__ in ("builtins", "collections") or isinstance(owner, Tensor):
        return None
    if owner is sys.stdout or owner is sys.stderr:
        return show
    return _ways(kind.__module__)


_WAYS: dict[str | None, Function | None] = {}


def _ways(module: str | None) -> Function | None:
    """Return how functions of a module are called; None for those that know lanes, or are the user's own."""
    try:
        return _WAYS[module]
    except KeyError:
        return _WAYS.setdefault(module, _find_way(module or ""))


def _find_way(module: str) -> Function | None:
    package = module.partition(".")[0]
    if package in ("torch", "headwater"):
        return None
    if package in ("logging", "warnings"):
        return log
    if package == "tqdm":
        return show
    if module in ("_pickle", "marshal"):
        return store
    if module in _PURE or (package == "numpy" and not module.startswith("numpy.random")):
        return lift
    return None if is_users_module(module) else guard


_IMMUTABLE = frozenset({str, bytes, int, float, complex, bool})
_PURE = frozenset({"math", "cmath", "statistics", "re", "posixpath", "ntpath", "genericpath", "textwrap", "json"})
_LIFTED = (
    float, int, complex, bool, str, repr, ascii, format, max, min, type, hasattr, sorted, ord, chr, hex, oct, bin, id,
)  # fmt: skip
_PROTOCOLS = (
    abs, all, any, callable, divmod, hash, isinstance, issubclass, iter, len, next, pow, round, sum,
)  # fmt: skip
_BUILTINS: Mapping[Any, Function | None] = {
    **dict.fromkeys(_LIFTED, lift),
    **dict.fromkeys(_PROTOCOLS),
    **dict.fromkeys((getattr, setattr, delattr), name_attribute),
    print: show,
}
"""Functions of Python; what a class can answer for every lane is called as it is."""
