"""Where lanes' models differ in something callable without weights, such as an activation, each lane has its own.

Code that runs for one lane by itself, such as the factory of its model, sees that lane's values. The models it builds
are then compared, place by place. Where they differ in a module or a function that holds no weights, the first model,
which is to stand for all of them, gets a `LaneChoice`; where they differ in anything else, the lanes part.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwater.devices import send
from headwater.errors import CannotFuseError
from headwater.fuse.apart import per_lanes, tensors
from headwater.fuse.layouts import Layouts, is_displaced, order_of
from headwater.fuse.likeness import alike, parts_of, slots_of, sort_alike
from headwater.fuse.mode import LaneMode, current_mode
from headwater.fuse.per_lane import PerLane, PerLaneText, PerLaneThing
from headwater.fuse.roster import Roster
from headwater.fuse.targets import narrow
from headwater.torch_private import children_of, is_lane_tensor, is_transforming, lanes_of, stack_of

Places: TypeAlias = tuple[int, ...]


@contextmanager
def answering_for(roster: Roster, place: int) -> Iterator[None]:
    """Let values that differ between lanes be those of one lane for a while, in Python and in torch calls."""
    with roster.answering_for(place), _OwnValues():
        yield


class _OwnValues(TorchFunctionMode):
    """Gives torch the values of the lane that code runs for."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*_own(args), **_own(dict(kwargs or {})))


def _own(value: Any) -> Any:
    if isinstance(value, PerLane | PerLaneText):
        return value.one()
    if next(per_lanes([value]), None) is None:
        return value
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    return type(value)(_own(item) for item in value)


class LaneChoice(nn.Module):
    """Applies to each lane what its own model has in this place."""

    def __init__(self, choices: Sequence[Any]) -> None:
        super().__init__()
        self.kinds = sort_alike(choices)
        """Lanes with the same number have the same choice."""
        self.choices = nn.ModuleList(choice if isinstance(choice, nn.Module) else _Called(choice) for choice in choices)
        self._arrangement = _Arrangement(self.choices, self.kinds)

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places."""
        self.kinds = [self.kinds[place] for place in places]
        self.choices = nn.ModuleList(self.choices[place] for place in places)
        self._arrangement = _Arrangement(self.choices, self.kinds)

    def for_lane(self, place: int) -> Any:
        """Return the choice of the lane at this place."""
        choice = self.choices[place]
        return choice.function if isinstance(choice, _Called) else choice

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute for each lane what its model computes here.

        Raises:
            LanesPart: What comes out cannot be one, for instance because only some lanes draw random numbers.
        """
        mode = current_mode()
        if mode is None or is_transforming():
            raise CannotFuseError("lanes that differ in a module cannot go through it in torch.func or another thread")
        if len(self.choices) != mode.num_lanes:
            self.narrow(mode.roster.places_since(len(self.choices)))
        for tensor in tensors((*args, *kwargs.values())):
            narrow(tensor, mode.roster)
        try:
            return self._compute(mode, args, kwargs)
        except CannotFuseError as error:
            raise mode.roster.part_between(self.kinds, str(error)) from error

    def _compute(self, mode: LaneMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrangement = self._arrangement
        takes_lanes = len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and is_lane_tensor(args[0])
        if takes_lanes and arrangement.is_whole:
            return arrangement.run(args[0])
        Layouts().prepare(self, args, kwargs)
        ready = arrangement.run_parts(args[0]) if takes_lanes else {}
        turns = iter(range(mode.num_lanes))
        orders: list[list[list[int]]] = []

        def run_lane(*lane_args: Any, **lane_kwargs: Any) -> Any:
            place = next(turns)
            answer = ready.get(place)
            if answer is None:
                with answering_for(mode.roster, place):
                    answer = self._run_choice(place, lane_args, lane_kwargs)
            orders.append([order_of(tensor) for tensor in tensors([answer])])
            if orders[-1] != orders[0]:
                raise CannotFuseError(f"{self._names()} give lanes results that lie in memory in different orders")
            return answer

        run_lane.__qualname__ = self._names()
        return mode.run_looped(run_lane, args, kwargs)

    def _run_choice(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self.choices[place](*args, **kwargs)
        except RuntimeError as error:
            if "modified inplace" not in str(error):
                raise
            raise CannotFuseError(f"{self._names()} writes into its input") from error

    def _names(self) -> str:
        return " or ".join(dict.fromkeys(_name(choice) for choice in self.choices))


class _Called(nn.Module):
    """A function in the place of a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class _Arrangement:
    """The lanes whose choice acts on each element by itself, in parts that have the same choice.

    A part is computed as one stack. Lanes never go through the choice of another lane, not even to be masked out
    afterwards: its gradient might be NaN.
    """

    def __init__(self, choices: nn.ModuleList, kinds: Sequence[int]) -> None:
        by_kind: dict[int, list[int]] = {}
        for place, (choice, kind) in enumerate(zip(choices, kinds, strict=True)):
            if _is_pointwise(choice):
                by_kind.setdefault(kind, []).append(place)
        self._parts: list[tuple[nn.Module, Places]] = [
            (choices[places[0]], tuple(places)) for places in by_kind.values()
        ]
        self._order: Places = tuple(chain.from_iterable(places for _, places in self._parts))
        self._indices: dict[tuple[Places, torch.device], Tensor] = {}
        self.is_whole = len(self._order) == len(choices)
        """Whether every lane is in a part."""

    def run(self, x: Tensor) -> Tensor:
        """Compute all lanes, each laid out in memory as it was."""
        stack = stack_of(x)
        if len(self._parts) == 1:
            answer = self._parts[0][0](stack)
        else:
            there, back = _dims_by_memory(stack)
            answer = torch.cat(self._run(stack.permute(there)))
            if self._order != tuple(range(len(answer))):
                into_place = tuple(sorted(range(len(answer)), key=self._order.__getitem__))
                answer = answer.index_select(0, self._index(into_place, answer))
            answer = answer.permute(back)
        lanes = lanes_of(answer)
        if is_displaced(x):
            Layouts().displace(lanes)
        return lanes

    def run_parts(self, x: Tensor) -> dict[int, Tensor]:
        """Compute the lanes that are in a part, and return them by their place."""
        if not self._parts:
            return {}
        there, back = _dims_by_memory(stack_of(x))
        answers = [answer.permute(back).unbind(0) for answer in self._run(stack_of(x).permute(there))]
        return dict(zip(self._order, chain.from_iterable(answers), strict=True))

    def _run(self, rows: Tensor) -> list[Tensor]:
        """Return the answer of each part.

        What writes into its input gets a copy, which is put back afterwards.
        """
        writes = any(_writes(choice) for choice, _ in self._parts)
        is_in_order = self._order == tuple(range(len(rows))) and not writes
        own = rows if is_in_order else rows.index_select(0, self._index(self._order, rows))
        answers = []
        for (choice, places), piece in zip(self._parts, own.split([len(part[1]) for part in self._parts]), strict=True):
            answers.append(choice(piece.clone() if _writes(choice) else piece))
            if _writes(choice):
                rows.index_copy_(0, self._index(places, rows), answers[-1])
        if len({answer.dtype for answer in answers}) > 1:
            names = " and ".join(_name(choice) for choice, _ in self._parts)
            raise CannotFuseError(f"{names} give lanes results of different types")
        return answers

    def _index(self, places: Places, like: Tensor) -> Tensor:
        key = (places, like.device)
        if key not in self._indices:
            with torch.inference_mode(False):  # training will use it too
                self._indices[key] = send(torch.tensor(places), like.device)
        return self._indices[key]


def _dims_by_memory(stack: Tensor) -> tuple[list[int], list[int]]:
    """Return the dimensions of a stack, the lanes first and the others as they lie in memory, and the way back."""
    there = [0, *sorted(range(1, stack.dim()), key=stack.stride, reverse=True)]
    return there, sorted(range(stack.dim()), key=there.__getitem__)


def _writes(choice: nn.Module) -> bool:
    return bool(getattr(choice, "inplace", False))


def _is_pointwise(choice: nn.Module) -> bool:
    """Tell whether the choice acts on each element by itself, alike in all lanes that have it."""
    if isinstance(choice, _Called):
        return any(choice.function is function for function in _POINTWISE_FUNCTIONS)
    differs_or_has_hooks = any(
        isinstance(value, PerLane | PerLaneText) or (isinstance(value, list) and value)
        for value in slots_of(choice).values()
    )
    return type(choice) in _POINTWISE and not differs_or_has_hooks


_POINTWISE = frozenset({
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU,
    nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign,
    nn.Tanh, nn.Tanhshrink, nn.Threshold,
})  # fmt: skip

_POINTWISE_FUNCTIONS: tuple[Any, ...] = tuple(
    getattr(home, name)
    for name in [
        "celu",
        "elu",
        "gelu",
        "hardshrink",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "mish",
        "relu",
        "relu6",
        "selu",
        "silu",
        "sigmoid",
        "softplus",
        "softshrink",
        "softsign",
        "tanh",
        "tanhshrink",
        "sin",
        "cos",
        "exp",
        "square",
    ]
    for home in (torch, F, Tensor)
    if hasattr(home, name)
)
"""What torch does with each element by itself, and leaves in its place in memory: a log-sigmoid would not."""


def insert_choices(models: Sequence[nn.Module], roster: Roster | None) -> None:
    """Give the first model a LaneChoice wherever the models differ in something callable that holds no weights.

    Raises:
        LanesPart: The models differ in something else, and the roster knows what made them differ.
        CannotFuseError: They differ in something else, and nothing is known.
    """
    steps = _merge(models, "", set())
    if isinstance(steps, _Mismatch):
        raise refusal(steps.kinds, steps.reason, roster)
    for step in steps:
        setattr(step.owner, step.name, step.value)


def refusal(kinds: Sequence[object], reason: str, roster: Roster | None) -> BaseException:
    """Return what to raise where lanes of different kinds cannot be one."""
    return CannotFuseError(reason) if roster is None else roster.part_between(kinds, reason)


@dataclass(frozen=True, slots=True)
class _Step:
    """Something to put into the first model, so that it stands for all."""

    owner: nn.Module
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """What lanes' models differ in, and cannot."""

    where: str
    values: Sequence[Any]

    @property
    def kinds(self) -> list[int]:
        """Lanes with the same number are alike."""
        return sort_alike(self.values)

    @property
    def reason(self) -> str:
        first, other = (self.values[self.kinds.index(kind)] for kind in (0, 1))
        return f"the models of two lanes differ in {self.where}: {_name(first)} and {_name(other)}"


def _merge(modules: Sequence[nn.Module], path: str, above: set[tuple[int, ...]]) -> list[_Step] | _Mismatch:
    """Compare the modules that lanes have in one place, and all below."""
    key = tuple(id(module) for module in modules)
    if len(set(key)) == 1 or key in above:
        return []
    if not all(alike(type(modules[0]), type(module)) for module in modules):
        return _Mismatch(path or "the model", [type(module) for module in modules])
    slots = [slots_of(module) for module in modules]
    in_all = set.intersection(*(set(children_of(module)) for module in modules))
    names = [(each.keys(), [name for name in each if name in in_all]) for each in slots]
    if any(each != names[0] for each in names):
        return _Mismatch(f"what {path or 'the model'} holds", [", ".join(each) for each in slots])
    steps: list[_Step] = []
    for name in slots[0]:
        where = f"{path}.{name}".lstrip(".")
        merged = _merge_slot(modules[0], name, [each[name] for each in slots], where, above | {key})
        if isinstance(merged, _Mismatch):
            return merged
        steps += merged
    return steps


def _merge_slot(
    owner: nn.Module, name: str, values: Sequence[Any], where: str, above: set[tuple[int, ...]]
) -> list[_Step] | _Mismatch:
    """Compare what lanes' modules have under one name."""
    merged: list[_Step] | _Mismatch = _Mismatch(where, values)
    if all(isinstance(value, nn.Module) for value in values):
        merged = _merge(values, where, above)
    elif all(alike(values[0], value) for value in values):
        things = values[0].values if isinstance(values[0], PerLaneThing) else ()
        return [_Step(owner, name, LaneChoice(things))] if things and all(map(_is_free, things)) else []
    elif all(isinstance(value, Tensor) for value in values) and len({(each.shape, each.dtype) for each in values}) == 1:
        return [_Step(owner, name, lanes_of(torch.stack([value.detach() for value in values])))]
    if isinstance(merged, _Mismatch) and all(map(_is_free, values)):
        return [_Step(owner, name, LaneChoice(values))]
    return merged


def _is_free(value: Any) -> bool:
    """Tell whether a value can be called and holds no weights, not even by a detour."""
    if isinstance(value, type) or not callable(value):
        return False
    return not _holds_weights(value, set())


def _holds_weights(value: Any, seen: set[int]) -> bool:
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, Tensor):
        return value.requires_grad or is_lane_tensor(value)
    if isinstance(value, nn.Module) and (value.state_dict() or any(True for _ in value.buffers())):
        return True
    return any(_holds_weights(part, seen) for part in parts_of(value) or ())


def _name(value: Any) -> str:
    """Say in a word or two what a value is."""
    if isinstance(value, _Called):
        return _name(value.function)
    if isinstance(value, partial):
        return _name(value.func)
    if isinstance(value, nn.Module):
        return type(value).__name__
    name: str = getattr(value, "__name__", "") or reprlib.repr(value)
    return type(value).__name__ if " at 0x" in name else name
