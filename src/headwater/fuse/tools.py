"""What the user's code asks of Python and of libraries, answered for every lane: the tools of `fuse/syntax.py`."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.utils.clip_grad as clipping
from torch import Tensor, nn

from headwater.errors import LanesPart
from headwater.fuse.branches import (
    attribute,
    augment,
    begin,
    branch,
    each,
    element,
    is_split,
    masked,
    may_leave,
    read_locals,
    refuse,
    require_all,
    require_joint,
    require_own,
    require_whole,
    select,
    set_item,
    settle,
    turn,
)
from headwater.fuse.building import RECURRENT, build_recurrent, distribute, from_numpy
from headwater.fuse.draws import draw, draw_from_global
from headwater.fuse.harmless import changes_arguments, is_harmless
from headwater.fuse.keeping import ARRAY_WRITERS, on_files, reads_files, serialize, summarise, write_file, write_stream
from headwater.fuse.lifting import (
    ROSTER,
    STAND_INS,
    Function,
    guard,
    lift,
    lift_arrays,
    name_attribute,
    name_function,
    own,
    store,
)
from headwater.fuse.per_lane import PerLane, PerLaneMapping
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.roster import ReachedCode, Roster
from headwater.fuse.showing import log, show
from headwater.fuse.turn_calls import call_in_turn, may_call
from headwater.fuse.users_code import find_functions, is_library, is_users_module
from headwater.trials.functions import fill_in, join_pieces

__all__ = [
    "answering",
    "attribute",
    "augment",
    "begin",
    "branch",
    "each",
    "element",
    "go_on",
    "is_split",
    "item",
    "lanes",
    "masked",
    "may_leave",
    "of",
    "other_thing",
    "own",
    "reach",
    "read_locals",
    "remainder",
    "require_all",
    "require_joint",
    "require_own",
    "require_whole",
    "same_thing",
    "select",
    "set_item",
    "settle",
    "source",
    "subject",
    "taking",
    "text",
    "turn",
]


@contextmanager
def answering(function: Function, roster: Roster) -> Iterator[None]:
    """Let the function, and what of the user's it calls, ask for every lane; so too torch's gradient clipping."""
    roster.code.functions += REWRITES.open(function, clipping)
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
    if roster is not None and roster.halt is not None:
        raise LanesPart(roster.halt)
    require_joint()


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


def of(function: Any) -> Function:
    """Return the function, or what is to be called in its place."""
    roster = ROSTER.get()
    if roster is not None and roster.turn is not None:
        return partial(call_in_turn, function, roster, REWRITES)
    return _find(function) if roster is None or roster.mask is None else partial(_call_masked, function)


def _call_masked(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function in a branch that only some lanes take, if that concerns nobody but these."""
    roster = ROSTER.get()
    is_safe = is_harmless(function, REWRITES) and not changes_arguments(function, args, kwargs)
    if roster is not None and roster.mask is not None and not is_safe:
        refuse(roster, f"one side calls {name_function(function)}")
    return _find(function)(*args, **kwargs)


def _find(function: Any) -> Function:
    kind = type(function)
    if kind is FunctionType:
        way = _way_of_function(function)
    elif kind is MethodType:
        way = _ways(getattr(function.__func__, "__module__", None))
    elif kind is BuiltinFunctionType:
        way = _way_of_builtin(function)
    elif isinstance(function, nn.Module):
        way = None if _ways(kind.__module__) is None else _call_users
    elif isinstance(function, type):
        way = _way_of_class(function)
    elif kind is MethodDescriptorType:
        way = lift if function.__objclass__ in _IMMUTABLE else None
    elif kind is partial:
        return function if _find(function.func) is function.func else partial(guard, function)
    else:
        way = draw if function is np.random.seed else _ways(kind.__module__)
    way = _way_of_users(function) if way is _call_users else way
    return function if way is None else partial(_way_of_files(function, way), function)


def _call_users(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call what is the user's own."""
    return function(*args, **kwargs)


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
        return None
    if REWRITES.has(code):
        return None
    reach(code)
    return None if REWRITES.has(code) or _is_made(code) else store


def find_unknown(functions: Sequence[Any]) -> str:
    """Let all code of the user's that functions lead to ask for every lane; return the name of some that cannot."""
    reach(*functions)
    found = (each for each in find_functions(functions, in_globals=False) if not REWRITES.has(each))
    lost = [each for each in found if not _is_made(each) or each.__name__ in _CALLED]
    lost += [each for each in functions if not may_call(each, (), {}, REWRITES)]
    return next(map(name_function, lost), "")


_CALLED = frozenset({"__call__", "__getitem__", "__getitems__", "__iter__", "__next__"})
"""Methods that a dataclass does not make."""


def _is_made(function: FunctionType) -> bool:
    """Tell whether a function is a library's: what wraps one of the user's, or a method that a dataclass has."""
    name = function.__name__
    return is_library(function.__code__.co_filename) or (name.startswith("__") and name.endswith("__"))


def _way_of_files(function: Any, way: Function) -> Function:
    """Return how to call a function that may write a file, or come upon one that each lane has its own of."""
    name = getattr(function, "__name__", "")
    if (way is lift_arrays and name in ARRAY_WRITERS) or (way is lift and name == "dump"):
        return write_file
    roster = ROSTER.get()
    if roster is None or not roster.kept.files or way not in (guard, lift, lift_arrays, draw_from_global):
        return way
    return partial(on_files, way) if reads_files(function, is_known=way is not guard) else way


def _way_of_class(kind: type) -> Function | None:
    if kind in RECURRENT:
        return build_recurrent
    return _BUILTINS.get(kind) if kind.__module__ == "builtins" else _ways(kind.__module__)


def _way_of_function(function: FunctionType) -> Function | None:
    way = _ways(function.__module__)
    return show if way is guard and function is builtins.print else way  # Ray, for one, has its own `print`


def _way_of_builtin(function: Any) -> Function | None:
    owner = function.__self__
    if function is torch.from_numpy:
        return from_numpy
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
    """Return how functions of a module are called; None for those that know lanes."""
    try:
        return _WAYS[module]
    except KeyError:
        return _WAYS.setdefault(module, _find_way(module or ""))


def _find_way(module: str) -> Function | None:
    package = module.partition(".")[0]
    way = _KEEPING.get(module) or _PACKAGES.get(package)
    if way is not None:
        return way
    if module.startswith("torch.distributions"):
        return distribute
    if package in ("torch", "headwater"):
        return None
    if module in _PURE:
        return lift
    if module == "random" or module.startswith("numpy.random"):
        return draw
    if module.startswith(_ARRAYS):
        return lift_arrays if package == "numpy" else draw_from_global
    return _call_users if is_users_module(module) else guard


_PACKAGES: Mapping[str, Function] = {"logging": log, "warnings": log, "tqdm": show}
_KEEPING: Mapping[str, Function] = {
    "torch.serialization": serialize,
    "torch.utils.tensorboard.writer": summarise,
    "_io": write_stream,
    "_pickle": store,
    "marshal": store,
}
_IMMUTABLE = frozenset({str, bytes, int, float, complex, bool})
_PURE = frozenset({"math", "cmath", "statistics", "re", "posixpath", "ntpath", "genericpath", "textwrap", "json"})
_ARRAYS = ("numpy", "sklearn.metrics", "scipy.special", "scipy.stats")
_LIFTED = (
    float, int, complex, bool, str, repr, ascii, format, max, min, type, hasattr, sorted, ord, chr, hex, oct, bin, id,
)  # fmt: skip
_PROTOCOLS = (
    abs, all, any, callable, divmod, hash, isinstance, issubclass, iter, len, next, pow, round, sum,
    locals, globals, vars, dir, eval, exec, breakpoint,
)  # fmt: skip
_BUILTINS: Mapping[Any, Function | None] = {
    **dict.fromkeys(_LIFTED, lift),
    **dict.fromkeys(_PROTOCOLS),
    **dict.fromkeys((getattr, setattr, delattr), name_attribute),
    print: show,
}
"""Functions of Python; what a class can answer for every lane is called as it is."""
