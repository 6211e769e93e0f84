"""The user's code: what is theirs and no library's, and which of their functions can be reached from something."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_LIBRARIES = tuple(
    f"{Path(place).resolve()}{os.sep}"
    for place in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(torch.__file__).parent),
        str(Path(__file__).parent.parent),
    )
)
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Where packages are installed, also those of another environment that this one sees."""
MAX_VISITED = 20_000
"""How many values are looked at, the nearest first: data may be long, and code is not."""
MAX_ITEMS = 256
"""How many items of a list or a dictionary are looked at."""
_INERT = frozenset({int, float, complex, bool, str, bytes, type(None), Tensor, torch.nn.Parameter, np.ndarray})
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, MappingProxyType)
WRAPPERS: dict[type, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    partial: ("func", "args", "keywords"),
    CellType: ("cell_contents",),
    type(lru_cache(abs)): ("__wrapped__",),
}
"""What wraps a function, and where it has it."""


def find_functions(value: Any, *, in_globals: bool = True) -> list[FunctionType]:
    """Return the functions and methods of the user's own that can be reached from a value, such as a function.

    They may be in modules, classes, lists, tables, attributes, closures, defaults, and in what wraps them; and in the
    global variables of other functions, unless `in_globals` is False.
    """
    waiting, seen, found = deque([value]), dict[int, Any](), list[FunctionType]()
    while waiting and len(seen) < MAX_VISITED:
        each = waiting.popleft()
        if type(each) in _INERT or id(each) in seen:
            continue
        seen[id(each)] = each
        if type(each) is FunctionType and not is_library(each.__code__.co_filename):
            found.append(each)
        parts = _parts(each) if in_globals or type(each) is not FunctionType else each.__closure__ or ()
        waiting.extend(parts)
    return found


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a value holds, as far as there may be the user's functions in it."""
    kind = type(value)
    if kind is FunctionType:
        yield from _parts_of_function(value)
    elif kind is ModuleType:
        if is_users_module(value.__name__):
            yield from [*vars(value).values()]
    elif isinstance(value, type):
        if is_users_module(value.__module__):
            yield from (kind, *value.__bases__, *vars(value).values())
    elif kind in WRAPPERS:
        yield from (part for name in WRAPPERS[kind] for part in _attribute(value, name))
    elif not kind.__module__.startswith("headwater."):
        yield from _parts_of_object(value)


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    yield from function.__closure__ or ()
    yield from function.__dict__.values()
    if not is_library(function.__code__.co_filename):
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        yield from [*function.__globals__.values()]


def _parts_of_object(value: Any) -> Iterator[Any]:
    kind = type(value)
    if isinstance(value, _CONTAINERS):
        yield from _items(value)
    yield kind
    for attributes in _attribute(value, "__dict__"):
        if isinstance(attributes, dict):
            yield from _items(attributes)
    for base in kind.__mro__ if is_users_module(kind.__module__) else ():
        members = (name for name, part in [*vars(base).items()] if isinstance(part, MemberDescriptorType))
        yield from (part for name in members for part in _attribute(value, name))


def _items(values: Iterable[Any]) -> Iterator[Any]:
    if isinstance(values, dict | MappingProxyType):
        yield from _first_of(values)
        yield from _first_of(values.values())
    else:
        yield from _first_of(values)


def _first_of(values: Iterable[Any]) -> list[Any]:
    try:
        return [each for each in islice(values, MAX_ITEMS) if type(each) not in _INERT]
    except RuntimeError:  # a thread changes it just now
        return []


def _attribute(value: Any, name: str) -> Iterator[Any]:
    """Yield an attribute if it is there, without running code of the user's."""
    try:
        yield object.__getattribute__(value, name)
    except (AttributeError, TypeError, ValueError):
        return


@cache
def is_library(filename: str) -> bool:
    """Tell whether a file belongs to Python, to an installed package or to us, not to the user."""
    if filename.startswith("<frozen"):
        return True
    path = Path(filename).resolve()
    return str(path).startswith(_LIBRARIES) or not _PACKAGES.isdisjoint(path.parts)


def is_users_module(name: object) -> bool:
    """Tell whether the module of this name is no library."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None:
        return False
    return not is_library(getattr(module, "__file__", None) or ("" if name == "__main__" else "<frozen"))
