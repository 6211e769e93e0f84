"""Whether two models' modules, settings and functions are interchangeable, but for their weights.

What was made anew for each model, such as a closure or a class inside a factory, is compared by what it is made of.
What cannot be looked into counts as alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from numbers import Number
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import torch
from torch import Tensor, nn

from headwater.fuse.per_lane import PerLane, PerLaneText, same
from headwater.torch_private import COMPILED_CALL, COMPILED_CHILD, MODULE_TABLES, children_of, is_lane_tensor

_BY_VALUE = (
    Number, str, bytes, NoneType, EllipsisType, slice, range, set, frozenset, CodeType, BuiltinFunctionType,
    torch.dtype, torch.device, torch.memory_format,
)  # fmt: skip
_OPAQUE = (ModuleType, weakref.ref, torch.Generator)
_NO_SLOTS = MODULE_TABLES | {COMPILED_CALL}
_HOOKS = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, dict)) - MODULE_TABLES


def sort_alike(values: Sequence[Any]) -> list[int]:
    """Number the values so that those which are alike have the same number, from 0 in order of appearance."""
    firsts: list[Any] = []
    numbers: list[int] = []
    for value in values:
        number = next((number for number, first in enumerate(firsts) if alike(first, value)), len(firsts))
        firsts += [value] if number == len(firsts) else []
        numbers.append(number)
    return numbers


def alike(a: Any, b: Any, seen: set[tuple[int, int]] | None = None) -> bool:
    """Tell whether two things are interchangeable, but for the values of parameters and buffers."""
    seen = set() if seen is None else seen
    if a is b or (id(a), id(b)) in seen:
        return True
    if isinstance(a, PerLane | PerLaneText):
        return type(a) is type(b) and all(same(*pair) for pair in zip(a.values, b.values, strict=True))
    seen.add((id(a), id(b)))
    if isinstance(a, type) and isinstance(b, type):
        return _are_classes_alike(a, b, seen)
    if type(a) is not type(b) and not alike(type(a), type(b), seen):
        return False
    if isinstance(a, Tensor):
        return _are_tensors_alike(a, b)
    parts, others = parts_of(a), parts_of(b)
    if parts is None or others is None:
        return not isinstance(a, _BY_VALUE) or same(a, b)
    return len(parts) == len(others) and all(alike(*pair, seen) for pair in zip(parts, others, strict=True))


def slots_of(module: nn.Module) -> dict[str, Any]:
    """Return all that a module has under a name, its hooks as lists, but for parameters and buffers."""
    children = children_of(module)
    if COMPILED_CHILD in children:  # compiled, which shows in nothing but the speed
        return children
    own = {name: [*value.values()] if name in _HOOKS else value for name, value in vars(module).items()}
    return {name: value for name, value in own.items() if name not in _NO_SLOTS} | children


def parts_of(value: Any) -> Sequence[Any] | None:
    """Return what a thing is made of; None where it is one whole."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return [*value.items()]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return [value.__code__, value.__defaults__, value.__kwdefaults__, *cells]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, nn.Module):
        return [*slots_of(value).items()]
    if isinstance(value, (type, *_BY_VALUE, *_OPAQUE)) or not hasattr(value, "__dict__"):
        return [value.__self__] if isinstance(getattr(value, "__self__", None), Tensor) else _numbers_of(value)
    return [*vars(value).items()]


def _numbers_of(value: Any) -> Sequence[Any] | None:
    """Return the content of an array of NumPy's."""
    return [str(value.dtype), value.shape, value.tobytes()] if hasattr(value, "__array_interface__") else None


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _are_tensors_alike(a: Tensor, b: Tensor) -> bool:
    if isinstance(a, nn.Parameter) or is_lane_tensor(a) or is_lane_tensor(b):
        return True
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def _are_classes_alike(a: type, b: type, seen: set[tuple[int, int]]) -> bool:
    """Tell whether a class inside a function was only made twice; what its `__init__` does shows in the objects."""
    if (a.__module__, a.__qualname__, len(a.__mro__)) != (b.__module__, b.__qualname__, len(b.__mro__)):
        return False
    ours, theirs = (
        [value for name, value in vars(kind).items() if isinstance(value, FunctionType) and name != "__init__"]
        for kind in (a, b)
    )
    return alike(ours, theirs, seen)
