"""What may be called in a branch that only some lanes take: what computes, shows or keeps, and changes nothing else."""

from __future__ import annotations

import builtins
import copy
import random
import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwater.fuse.lifting import CHANGERS, INTO_ARRAYS
from headwater.fuse.rewriting import Rewrites
from headwater.fuse.users_code import is_users_module

DICE = (torch.Generator, np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
"""What random numbers are drawn from."""
_LIBRARIES = (
    "numpy", "sklearn.metrics", "scipy.special", "scipy.stats", "math", "cmath", "statistics", "re", "posixpath",
    "ntpath", "genericpath", "textwrap", "json", "logging", "tqdm", "torch.serialization",
    "torch.utils.tensorboard.writer", "torch.nn.functional", "torch.functional",
)  # fmt: skip
"""Modules whose functions are called once per lane, or only show and keep."""
_BUILTINS = frozenset({
    float, int, complex, bool, str, repr, ascii, format, max, min, type, hasattr, sorted, ord, chr, hex, oct, bin, id,
    abs, all, any, callable, divmod, hash, isinstance, issubclass, len, pow, round, sum, getattr, print, open, tuple,
    list, dict, set, range,
})  # fmt: skip
READING = frozenset({"get", "items", "keys", "values", "copy", "count", "index"})
"""Methods of lists and dictionaries."""
_WEIGHTS = frozenset(
    {"state_dict", "parameters", "named_parameters", "buffers", "named_buffers", "modules", "children"}
)
_FUNCTIONS = frozenset({copy.copy, copy.deepcopy, time.time, time.perf_counter, time.monotonic})
_SWITCHES = (torch.no_grad, torch.enable_grad, torch.inference_mode)
_CHANGING = frozenset({"backward", "numpy", "register_hook", "retain_grad", "set_", "load", "seed", "manual_seed"})


def is_harmless(function: Any, rewrites: Rewrites) -> bool:
    """Tell whether a call of a function concerns nobody but the lanes that it is made for."""
    kind = type(function)
    if kind is FunctionType:
        return _is_harmless_function(function, rewrites)
    if kind is MethodType:
        return _is_harmless_method(function, rewrites)
    if kind is BuiltinFunctionType:
        return _is_harmless_builtin(function)
    if isinstance(function, type):
        return function in _BUILTINS or function in _SWITCHES or function.__module__.startswith("numpy")
    if kind is MethodDescriptorType:
        return function.__objclass__ in (str, bytes, int, float) or _keeps(function.__name__)
    if isinstance(function, nn.Module):
        return False
    call = vars(kind).get("__call__")
    if isinstance(call, FunctionType) and is_users_module(kind.__module__):
        return rewrites.has(call)
    return _is_library(kind.__module__)


def changes_arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call would use an argument up, or write into it."""
    is_written = "out" in kwargs or getattr(function, "__name__", "") in INTO_ARRAYS
    has_out = isinstance(function, np.ufunc) and len(args) > function.nin
    return is_written or has_out or any(map(is_used_up, (*args, *kwargs.values())))


def is_used_up(value: Any) -> bool:
    """Tell whether reading a value changes it: random numbers that are drawn from, or an iterator."""
    return isinstance(value, DICE) or hasattr(type(value), "__next__")


def _is_harmless_function(function: Any, rewrites: Rewrites) -> bool:
    if is_users_module(function.__module__):
        return rewrites.has(function)
    return any(function is each for each in _FUNCTIONS) or function is builtins.print or _is_known(function)


def _is_harmless_method(method: MethodType, rewrites: Rewrites) -> bool:
    function = method.__func__
    if isinstance(function, FunctionType) and is_users_module(function.__module__):
        return rewrites.has(function)
    return method.__name__ in _WEIGHTS or (not isinstance(method.__self__, nn.Module) and _is_known(function))


def _is_harmless_builtin(function: Any) -> bool:
    owner = function.__self__
    if owner is builtins:
        return function in _BUILTINS
    if isinstance(owner, Tensor) or owner is torch._C._VariableFunctions or (owner is None and _is_torchs(function)):
        return _keeps(function.__name__)
    kind = owner if isinstance(owner, type) else type(owner)
    if kind in (str, bytes, int, float, complex, bool):
        return True
    if kind.__module__ in ("builtins", "collections"):
        return function.__name__ in READING or _is_library(function.__module__ or "")
    if kind.__module__ == "_io":
        return bool(function.__name__ == "write")
    if kind.__module__ == "numpy":
        return function.__name__ not in CHANGERS
    return any(function is each for each in _FUNCTIONS) or _is_library(kind.__module__)


def _keeps(name: str) -> bool:
    """Tell by its name whether a torch function leaves its arguments as they are."""
    return not (name.endswith("_") and not name.endswith("__")) and name not in _CHANGING


def _is_torchs(function: Any) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _is_known(function: Any) -> bool:
    return _is_library(function.__module__ or "") and function.__name__ not in _CHANGING


def _is_library(module: str) -> bool:
    return not module.startswith("numpy.random") and is_within(module, _LIBRARIES)


@cache
def is_within(module: str, names: tuple[str, ...]) -> bool:
    """Tell whether a module is one of these, or in one of them."""
    return any(module == name or module.startswith(f"{name}.") for name in names)
