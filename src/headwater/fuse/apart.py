"""One call, lane by lane: the arguments taken apart, the random numbers rewound, the answers put together."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from types import CodeType, EllipsisType, FrameType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwater import devices
from headwater.errors import CannotFuseError
from headwater.fuse.per_lane import PerLane, PerLaneMapping, same
from headwater.fuse.roster import Roster
from headwater.fuse.users_code import is_library
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of, version_of

_INERT = frozenset(
    {int, float, bool, str, NoneType, EllipsisType, slice, torch.dtype, torch.device, torch.memory_format}
)
_OPAQUE = frozenset({ModuleType, CodeType, FrameType, Roster})
_LISTS = (list, tuple)


def touches(values: Iterable[Any]) -> bool:
    """Tell whether a lane tensor or a PerLane is among the values. Every torch call asks this, so it is short."""
    for value in values:
        if isinstance(value, Tensor):
            if is_lane_tensor(value):
                return True
        elif type(value) not in _INERT and _touched(value):
            return True
    return False


def _touched(value: Any) -> bool:
    if isinstance(value, PerLane):
        return True
    if isinstance(value, _LISTS):
        return touches(value)
    return isinstance(value, dict) and touches(value.values())


def per_lanes(values: Iterable[Any]) -> Iterator[PerLane]:
    """Find the PerLane values, also in lists."""
    for value in values:
        if isinstance(value, PerLane):
            yield value
        elif isinstance(value, _LISTS):
            yield from per_lanes(value)
        elif isinstance(value, dict):
            yield from per_lanes(value.values())


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Find the tensors, also in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, _LISTS):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())


def is_per_lane(value: Any) -> bool:
    """Tell whether a value stands for those of all lanes."""
    return issubclass(type(value), PerLane | PerLaneMapping)


def reach_all(value: Any) -> Iterator[Any]:
    """Yield everything that can be reached from a value, whatever holds it.

    Containers of every kind, iterators, closures, bound methods and attributes are looked into. Tensors and values that
    differ by lane are not, nor are classes, modules of Python and the global variables of libraries.
    """
    seen, waiting = dict[int, Any](), [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind in _INERT or kind in _OPAQUE or id(each) in seen or issubclass(kind, type):
            continue
        seen[id(each)] = each
        yield each
        if not issubclass(kind, Tensor | PerLane | PerLaneMapping):
            waiting.extend(_parts_of(each, kind))


def _parts_of(value: Any, kind: type) -> Iterable[Any]:
    if kind is FunctionType:
        names = value.__code__.co_names if not is_library(value.__code__.co_filename) else ()
        shared = [value.__globals__[name] for name in names if name in value.__globals__]
        return [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__, *shared]
    if kind is np.ndarray:
        return value.ravel().tolist() if value.dtype.hasobject else ()
    return gc.get_referents(value)


def split(value: Any, num_lanes: int) -> list[Any]:
    """Return the value as each lane alone would have it."""
    if isinstance(value, Tensor):
        return list(stack_of(value).unbind(0)) if is_lane_tensor(value) else [value] * num_lanes
    if isinstance(value, PerLane):
        return list(value.values)
    if isinstance(value, PerLaneMapping):
        return value.by_lane()
    if isinstance(value, list | tuple):
        columns = [split(item, num_lanes) for item in value]
        return [_rebuild(value, [column[lane] for column in columns]) for lane in range(num_lanes)]
    if isinstance(value, dict):
        by_key = {key: split(item, num_lanes) for key, item in value.items()}
        return [{key: column[lane] for key, column in by_key.items()} for lane in range(num_lanes)]
    return [value] * num_lanes


class Dice:
    """The random numbers of a call: every lane starts from the same place in the stream."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str = "") -> None:
        self._name = name
        mine = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
        shared = [torch.default_generator, *devices.list_generators()]
        self._ends: list[Tensor] = []
        self._has_begun = False
        self._states = [(generator, generator.get_state()) for generator in (*shared, *mine)]

    def rewind(self) -> None:
        """Go back to where the stream stood when the call began."""
        for generator, state in self._states:
            generator.set_state(state)

    def begin_lane(self) -> None:
        """Let the next lane start where the first one did."""
        if self._has_begun:
            self.rewind()
        self._has_begun = True

    def end_lane(self) -> None:
        """Raise CannotFuseError where this lane's call has drawn more or fewer numbers than the first lane's."""
        ends = [generator.get_state() for generator, _ in self._states]
        self._ends = self._ends or ends
        if not all(torch.equal(end, first) for end, first in zip(ends, self._ends, strict=True)):
            raise CannotFuseError(
                f"how many random numbers {self._name} draws depends on a lane's values, so that lanes cannot share "
                "their stream"
            )


class Bystanders:
    """Tensors that all lanes share and that a call is not to write into."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        shared = (tensor for tensor in tensors((*args, *kwargs.values())) if not is_lane_tensor(tensor))
        self._versions = [(tensor, version_of(tensor)) for tensor in shared if not tensor.is_inference()]

    def require_unchanged(self, name: str) -> None:
        """Raise CannotFuseError where the call has written into one of them: each lane would write another value."""
        for tensor, version in self._versions:
            if version_of(tensor) != version:
                raise CannotFuseError(
                    f"{name} writes what a lane has computed into a tensor of shape {tuple(tensor.shape)} that all "
                    "lanes share; pass the module that holds it to trial.prepare_model"
                )


def join(answers: Sequence[Any], roster: Roster, name: str) -> Any:
    """Put the lanes' answers together.

    Raises:
        CannotFuseError: They differ in more than their numbers.
    """
    first = answers[0]
    if isinstance(first, Tensor):
        return _join_tensors(answers, name)
    if isinstance(first, tuple | list):
        if any(len(answer) != len(first) for answer in answers):
            raise CannotFuseError(f"{name} gives lanes results of different lengths")
        items = [join(parts, roster, name) for parts in zip(*answers, strict=True)]
        return _rebuild(first, items)
    if all(same(first, answer) for answer in answers):
        return first
    if all(isinstance(answer, Number) for answer in answers):
        return PerLane(answers, roster)
    raise CannotFuseError(f"{name} gives each lane a {type(first).__name__} of its own, which lanes cannot share")


def _join_tensors(answers: Sequence[Tensor], name: str) -> Tensor:
    first = answers[0]
    if any(is_lane_tensor(answer) for answer in answers):
        raise CannotFuseError(f"{name} computes with lanes' tensors that it does not take as arguments")
    if first.layout != torch.strided or first.is_nested:
        raise CannotFuseError(f"{name} gives a sparse or nested tensor, which lanes cannot share")
    if any(answer.shape != first.shape or answer.dtype != first.dtype for answer in answers):
        kinds = ", ".join(sorted({f"{tuple(answer.shape)} {answer.dtype}" for answer in answers}))
        raise CannotFuseError(f"{name} gives lanes results of different shapes or types: {kinds}")
    if first.is_contiguous():
        return lanes_of(torch.stack(list(answers)))
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    back = sorted(range(first.dim()), key=lambda place: order[place])
    stack = torch.stack([answer.permute(order) for answer in answers])
    return lanes_of(stack.permute(0, *(place + 1 for place in back)))


def _rebuild(like: Any, items: list[Any]) -> Any:
    """Return the items in a list or tuple of the same kind."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
