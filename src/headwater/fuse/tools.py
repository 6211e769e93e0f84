"""What the user's code asks of Python and of libraries, answered for every lane: the tools of `fuse/syntax.py`."""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.utils.clip_grad as clipping
from torch import Tensor
from torch.utils.data import DataLoader

from headwater.errors import CannotFuseError, LanesPart
from headwater.fuse import branches
from headwater.fuse.apart import is_per_lane
from headwater.fuse.branches import branch, is_split, read_locals, settle
from headwater.fuse.building import RECURRENT, TENSOR_KINDS, build_recurrent, build_tensor, distribute, from_numpy
from headwater.fuse.callers import find_base
from headwater.fuse.effects import CALLING, TABLE, Effect, find_effect
from headwater.fuse.holding import build_loader
from headwater.fuse.keeping import keep, on_files, summarise
from headwater.fuse.lifting import (
    STAND_INS,
    Function,
    call_unknown,
    lift,
    lift_arrays,
    name_attribute,
    own,
)
from headwater.fuse.per_lane import PerLane, PerLaneMapping, describe_misfit
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import ROSTER, ReachedCode, Roster
from headwater.fuse.showing import log, show, show_text
from headwater.fuse.users_code import is_library, is_users_module
from headwater.torch_private import find_taken_apply
from headwater.trials.functions import fill_in, join_pieces

__all__ = [
    "answering",
    "branch",
    "go_on",
    "is_split",
    "item",
    "lanes",
    "of",
    "operand",
    "other_thing",
    "own",
    "reach",
    "read_locals",
    "remainder",
    "same_thing",
    "settle",
    "source",
    "subject",
    "take_by_lane",
    "taking",
    "text",
]


@contextmanager
def answering(function: Function, roster: Roster) -> Iterator[None]:
    """Let the function, and what of the user's it calls, ask for every lane; so too torch's gradient clipping."""
    roster.code.functions += REWRITES.open(function, clipping)
    roster.code.variants, roster.code.base = REWRITES.variants, find_base()
    before = ROSTER.set(roster)
    try:
        with roster.running():
            yield
    finally:
        ROSTER.reset(before)
        REWRITES.close(roster.code.functions)
        roster.code = ReachedCode()


REWRITES = Rewrites(sys.modules[__name__])
"""One for the process, as functions are there once for the process."""


def go_on() -> None:
    """Raise where the lanes have to part: the code has caught what said so, or what came of it."""
    roster = ROSTER.get()
    if roster is None:
        return
    if roster.halt is not None:
        raise LanesPart(roster.halt)
    if (error := sys.exception()) is not None and (reason := describe_misfit(error)):
        roster.refuse(reason, error.__traceback__)
        raise CannotFuseError(reason) from error


def reach(*values: Any) -> None:
    """Let what was imported just now ask for every lane too."""
    roster = ROSTER.get()
    if roster is not None:
        roster.code.functions += REWRITES.open(values)


def source(function: Any, text: Any) -> Any:
    """Return what `eval` or `exec` is to run, in whose variables it runs: code that asks for every lane."""
    if ROSTER.get() is None or not isinstance(text, str | bytes) or not (function is eval or function is exec):
        return text
    mode: Literal["eval", "exec"] = "eval" if function is eval else "exec"
    return REWRITES.compile(text, mode, sys._getframe(1).f_code.co_flags) or text


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


def operand(value: Any, owner: Any, *names: str) -> Any:
    """Return the right side of `owner.name += value`, unless an array that all lanes share would take it.

    NumPy raises a TypeError of its own there, which the code may catch.
    """
    if not is_per_lane(value):
        return value
    for name in names:
        owner = getattr(owner, "__dict__", {}).get(name)  # runs no property
    roster = ROSTER.get()
    if type(owner) is np.ndarray and roster is not None:
        reason = "the code changes an array in place by a value that differs by lane"
        roster.refuse(reason)
        raise CannotFuseError(reason)
    return value


def item(owner: Any, key: Any) -> Any:
    """Answer `owner[key]`, where an array takes keys that differ by lane."""
    return lift_arrays(operator.getitem, owner, key) if _picks(owner, key) else owner[key]


def _picks(owner: Any, key: Any) -> bool:
    keys = key if type(key) is tuple else (key,)
    return type(owner) is np.ndarray and any(type(each) in STAND_INS or isinstance(each, Tensor) for each in keys)


def lanes(config: Any) -> Any:
    """Let a configuration hand out whatever differs by lane: it goes where that is known."""
    return config.keeping() if isinstance(config, PerLaneMapping) else config


def taking(function: Function) -> Function:
    """Return a method that takes whatever differs by lane, or what makes lanes part before they reach another one."""
    is_ours = getattr(function, "__module__", "") == "headwater.train.trial"
    return function if is_ours else partial(_resolve, function)


def _resolve(function: Function, *args: Any, **kwargs: Any) -> Any:
    return of(function)(*map(own, args), **{key: own(value) for key, value in kwargs.items()})


def take_by_lane(split: branches.Branch, plan: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """Run an `if` for each lane that goes its own way; return the variables that were assigned."""
    return branches.take_by_lane(REWRITES, split, plan, variables)


def of(function: Any) -> Function:
    """Return the function where it knows lanes, or the way to call it."""
    if type(function) is partial:
        found = of(function.func)
        return function if found is function.func else partial(found, *function.args, **function.keywords)
    if type(function) is BuiltinFunctionType and (taken_from := find_taken_apply(function)) is not None:
        function = taken_from.apply
    code = getattr(function, "__func__", function)
    if type(code) is FunctionType and REWRITES.has(code):
        may_show = type(function) is FunctionType and not _SCREEN.isdisjoint(code.__code__.co_names)
        return partial(show_text, function) if may_show else cast("Function", function)
    home = _find_home(function)
    if home is Home.USERS:
        way = _way_of_users(function)
    elif home is Home.TORCH:
        way = _way_of_torch(function)
    else:
        way = _WAYS[find_effect(function)]
        if way in (None, lift) and getattr(function, "__name__", "") in CALLING:
            return partial(_hand_on, function if way is None else partial(way, function))
    return function if way is None else partial(way, function)


_SCREEN = frozenset({"print", "stderr", "stdout"})
"""Names of which a function that shows something has one."""


def _hand_on(call: Function, *args: Any, **kwargs: Any) -> Any:
    """Call `map`, `sorted` and their like: a function that they are given is called as if the code called it itself."""
    return call(*map(_find_callee, args), **{key: _find_callee(value) for key, value in kwargs.items()})


def _find_callee(value: Any) -> Any:
    return of(value) if callable(value) and not is_per_lane(value) else value


class Home(enum.Enum):
    """The owner of a function."""

    USERS = enum.auto()
    TORCH = enum.auto()
    """Torch, whose calls go through the lane mode, and this package."""
    LIBRARY = enum.auto()


@cache
def _home_of(module: str) -> Home:
    if module.partition(".")[0] in ("torch", "headwater"):
        return Home.TORCH
    return Home.USERS if is_users_module(module) else Home.LIBRARY


def _find_home(function: Any) -> Home:
    """Return the owner of a function; a function that wraps another is a library's where one of the two is."""
    code = getattr(function, "__func__", function)
    if type(code) is not FunctionType:
        return _home_of(_module_of(function))
    homes = {_home_of(_module_of(code))}
    while type(wrapped := getattr(code, "__wrapped__", None)) is FunctionType and wrapped is not code:
        code = wrapped
        homes.add(_home_of(_module_of(code)))
    return next(home for home in (Home.LIBRARY, Home.USERS, Home.TORCH) if home in homes)


def _module_of(function: Any) -> str:
    """Return the name of the module whose code runs when a function is called."""
    kind = type(function)
    if kind is FunctionType:
        name = str(function.__globals__.get("__name__"))
        return function.__module__ or "" if name in _WRAPPERS else name
    if isinstance(function, type):
        return function.__module__
    if kind is not BuiltinFunctionType:
        return str(getattr(function, "__objclass__", kind).__module__)
    owner = function.__self__
    if owner is None or type(owner) is ModuleType:
        return function.__module__ or ""
    return str((owner if isinstance(owner, type) else type(owner)).__module__)


_WRAPPERS = frozenset({"contextlib", "functools"})
"""Modules whose wrappers hand values on to the function that they wrap."""


def _way_of_torch(function: Any) -> Function | None:
    if isinstance(function, type):
        if function in RECURRENT:
            return build_recurrent
        if issubclass(function, DataLoader):
            return build_loader
        is_distribution = function.__module__.startswith("torch.distributions")
        return distribute if is_distribution else build_tensor if function in TENSOR_KINDS else None
    if function is torch.from_numpy:
        return from_numpy
    if type(getattr(function, "__self__", None)).__module__ == "torch.utils.tensorboard.writer":
        return summarise
    effect = TABLE.find(function)
    return None if effect is None else _WAYS[effect]


def _way_of_users(function: Any) -> Function | None:
    """Let what is the user's own ask for every lane from now on; what cannot gets nothing that differs by lane."""
    roster = ROSTER.get()
    code = getattr(function, "__func__", function)
    if roster is None:
        return None
    if type(code) is not FunctionType:
        kind = function if isinstance(function, type) else type(function)
        if kind not in roster.code.classes:
            roster.code.classes.add(kind)
            reach(kind)
        names = ("__init__", "__new__") if isinstance(function, type) else ("__call__",)
        return call_unknown if any(_is_unknown(getattr(kind, name, None)) for name in names) else None
    if REWRITES.has(code):
        return None
    reach(code)
    return None if REWRITES.has(code) or _is_made(code) else call_unknown


def _is_unknown(method: Any) -> bool:
    """Tell whether a class has inherited a method from a library that is not known."""
    is_written = type(method) is FunctionType and not method.__code__.co_filename.startswith("<")
    return is_written and _find_home(method) is Home.LIBRARY and find_effect(method) is None


def _is_made(function: FunctionType) -> bool:
    """Tell whether a function is a library's: what wraps one of the user's, or a method that a dataclass has."""
    name = function.__name__
    return is_library(function.__code__.co_filename) or (name.startswith("__") and name.endswith("__"))


_WAYS: Mapping[Effect | None, Function | None] = {
    Effect.COMPUTE: lift,
    Effect.ARRAYS: lift_arrays,
    Effect.CONTAINER: None,
    Effect.ATTRIBUTE: name_attribute,
    Effect.SHOW: show,
    Effect.LOG: log,
    Effect.KEEP: keep,
    Effect.FILES: on_files,
    None: call_unknown,
}
"""How functions of libraries are called, by their effect; None: as they are."""
