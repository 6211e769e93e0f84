"""Arrays of NumPy that differ by lane: what is done with them is done with the array of each lane."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from headwater.fuse.apart import split
from headwater.fuse.operators import Operation
from headwater.fuse.per_lane import PerLane, gather, run_by_lane
from headwater.torch_private import is_lane_tensor


class PerLaneArray(PerLane):
    """One array per lane. Operators, items and methods go lane by lane; those that write write into each lane's own."""

    __slots__ = ()

    @property  # type: ignore[misc]  # what isinstance asks for
    def __class__(self) -> type[Any]:
        return np.ndarray

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        if callable(getattr(np.ndarray, name)):
            return partial(_call, self, name)
        return self._each(operator.attrgetter(name))

    def __len__(self) -> int:
        return operator.index(self._each(len))

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return self._each(operator.getitem, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._each(operator.setitem, key, value)

    def __contains__(self, item: Any) -> bool:
        return bool(self._each(operator.contains, item))

    def __matmul__(self, other: Any) -> Any:
        return self._each(operator.matmul, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._each(lambda mine, its: its @ mine, other)

    def __iadd__(self, other: Any) -> PerLaneArray:
        return self._change(operator.iadd, other)

    def __isub__(self, other: Any) -> PerLaneArray:
        return self._change(operator.isub, other)

    def __imul__(self, other: Any) -> PerLaneArray:
        return self._change(operator.imul, other)

    def __itruediv__(self, other: Any) -> PerLaneArray:
        return self._change(operator.itruediv, other)

    def __ifloordiv__(self, other: Any) -> PerLaneArray:
        return self._change(operator.ifloordiv, other)

    def __imod__(self, other: Any) -> PerLaneArray:
        return self._change(operator.imod, other)

    def __ipow__(self, other: Any) -> PerLaneArray:
        return self._change(operator.ipow, other)

    def __iand__(self, other: Any) -> PerLaneArray:
        return self._change(operator.iand, other)

    def __ior__(self, other: Any) -> PerLaneArray:
        return self._change(operator.ior, other)

    def __ixor__(self, other: Any) -> PerLaneArray:
        return self._change(operator.ixor, other)

    def __copy__(self) -> PerLane:
        return PerLaneArray([copy.copy(value) for value in self.values], self.roster)

    def __deepcopy__(self, memo: object) -> PerLane:
        return PerLaneArray([copy.deepcopy(value) for value in self.values], self.roster)

    def _apply(self, operation: Operation, other: Any, symbol: str, swapped: bool = False) -> Any:
        if isinstance(other, list | tuple):
            return self._each(lambda mine, its: operation(its, mine) if swapped else operation(mine, its), other)
        return super()._apply(operation, other, symbol, swapped)

    def _change(self, operation: Operation, other: Any) -> PerLaneArray:
        self._each(lambda mine, its: (operation(mine, its), None)[1], other)
        return self

    def _each(self, operation: Operation, *rest: Any) -> Any:
        rows = zip(self.values, *(split(item, len(self.roster)) for item in rest), strict=True)
        return gather(run_by_lane(operation, rows, self.roster), self.roster, None)


def _call(array: PerLaneArray, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of each lane's array."""
    num_lanes = len(array.roster)
    rows = zip(array.values, split(list(args), num_lanes), split(dict(kwargs), num_lanes), strict=True)

    def call(own: Any, lane_args: Any, lane_kwargs: Any) -> Any:
        return getattr(own, name)(*lane_args, **lane_kwargs)

    call.__name__ = name
    return gather(run_by_lane(call, rows, array.roster), array.roster, None)


def take_out(value: Any) -> Any:
    """Return lane tensors as arrays, and lists of them as lists of arrays; functions of NumPy would do so."""
    if isinstance(value, Tensor):
        return value.numpy() if is_lane_tensor(value) else value
    if type(value) in (list, tuple):
        return type(value)(map(take_out, value))
    return value
