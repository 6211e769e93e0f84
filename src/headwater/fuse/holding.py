"""Finds values that differ by lane in the data sets that all lanes of a group share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

from headwater.fuse.lifting import STAND_INS, Function
from headwater.fuse.per_lane import PerLaneMapping
from headwater.fuse.roster import ROSTER
from headwater.torch_private import is_lane_tensor

MAX_VISITED = 1_000_000
"""A longer search ends: every use of such a value is noticed while the data set is read, too."""
_LEAVES = (str, bytes, int, float, complex, type, nn.Module, np.generic, PerLaneMapping)


def require_shared(*values: Any) -> None:
    """Make the lanes part by a value that differs between them, in these values or in anything that they hold.

    Raises:
        LanesPart: There is one.
    """
    roster = ROSTER.get()
    if roster is None or roster.place is not None:
        return
    for value in _walk([*values]):
        if type(value) in STAND_INS:
            raise roster.part_by_loading(getattr(value, "recipe", None))
        if isinstance(value, Tensor) and is_lane_tensor(value):
            raise roster.part_by_loading(None)


def build_loader(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Build a DataLoader of torch."""
    require_shared(args, kwargs)
    return function(*args, **kwargs)


def _walk(waiting: list[Any]) -> Iterator[Any]:
    """Yield values and all that they hold."""
    seen: dict[int, Any] = {}
    while waiting and len(seen) < MAX_VISITED:
        value = waiting.pop()
        kind = type(value)
        if kind in STAND_INS or (issubclass(kind, Tensor) and is_lane_tensor(value)):
            yield value
        elif id(value) not in seen and not issubclass(kind, _LEAVES):
            seen[id(value)] = value
            waiting += _parts(value)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value
    elif isinstance(value, np.ndarray):
        yield from value.flat if value.dtype == object else ()
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        yield from (value.__defaults__ or ())
    if not isinstance(value, Tensor):
        yield from getattr(value, "__dict__", {}).values()
        slots = [name for base in type(value).__mro__ for name in vars(base).get("__slots__", ())]
        yield from (getattr(value, name) for name in slots if hasattr(value, name))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
