"""The parts into which lanes fall by their optimizer: those updated by one rule, and those that need a loop."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater import devices
from headwater.errors import CannotFuseError
from headwater.fuse.factors import Factor, Lanewise, lanewise
from headwater.fuse.flat_state import Chunk
from headwater.fuse.hyperparameters import pick
from headwater.fuse.optimizer_source import require_plain_optimizer
from headwater.fuse.updates import Rule
from headwater.torch_private import stack_of

Factory: TypeAlias = Callable[..., Optimizer]
ParamState: TypeAlias = dict[str, Any]
"""What torch keeps for one parameter: tensors by name."""


class RuledPart:
    """Lanes of one parameter group that share a rule and its flags; `places` are their places among all lanes.

    Neighbouring lanes are updated in views of the stacks, others in copies that are written back. Complex numbers are
    updated as pairs of real ones, which is what torch does.
    """

    def __init__(self, rule: Rule, flags: Mapping[str, bool], places: Sequence[int]) -> None:
        self.rule = rule
        self.flags = flags
        self.places = tuple(places)
        self._chunks: list[Chunk] = []
        self._numbers: Mapping[str, Lanewise] = {}
        self._factors: dict[str, Factor] = {}
        self._index: Tensor | None = None
        self._complex: frozenset[int] = frozenset()
        """The places of complex parameters."""

    def set_numbers(self, numbers: Mapping[str, Lanewise]) -> None:
        """Take over the hyperparameters, as the lanes of this part have them."""
        self._numbers = numbers
        before = self._factors
        self._factors = {
            name: before[name] if name in before and before[name].value == value else Factor(value)
            for name, value in {**numbers, **self.rule.derive(numbers)}.items()
        }

    def load(self, stacks: Sequence[Tensor], states: Sequence[Mapping[int, ParamState]]) -> None:
        """Start from the given state: what torch keeps for each parameter, by its place, in one mapping per lane."""
        self._complex = frozenset(place for place, stack in enumerate(stacks) if stack.is_complex())
        stacks = [_as_real(stack) for stack in stacks]
        steps = [lanewise([self._steps_in(state.get(place)) for state in states]) for place in range(len(stacks))]
        kinds: dict[Any, list[int]] = {}
        for place, stack in enumerate(stacks):
            kinds.setdefault((stack.dtype, stack.device, steps[place]), []).append(place)
        self._chunks = [
            Chunk.of(places, [stacks[place] for place in places], len(self.places), steps[places[0]])
            for places in kinds.values()
        ]
        for chunk in self._chunks:
            self._fill(chunk, states)

    def step(
        self, stacks: Sequence[Tensor], grads: Sequence[Tensor | None], skipped: Collection[int] = frozenset()
    ) -> None:
        """Update the parameters that have gradients; lanes at places that are skipped stay as they are."""
        rows = [row for row, place in enumerate(self.places) if place in skipped]
        if len(rows) == len(self.places):
            return
        if self._complex:
            stacks = [_as_real(stack) for stack in stacks]
            grads = [None if grad is None else _as_real(grad) for grad in grads]
        for chunk in self._stepping_chunks(grads):
            own_stacks = [stacks[place] for place in chunk.places]
            own_grads: list[Any] = [grads[place] for place in chunk.places]
            if not rows:
                self._update(chunk, own_stacks, own_grads)
                continue
            self._make_buffers(chunk, rows)
            kept, steps, index = chunk.copy_rows(rows), chunk.steps, [self.places[row] for row in rows]
            weights = [stack[index] for stack in own_stacks]
            self._update(chunk, own_stacks, own_grads)
            chunk.put_rows(rows, kept, steps)
            for stack, values in zip(own_stacks, weights, strict=True):
                stack[index] = values

    def _update(self, chunk: Chunk, stacks: list[Tensor], grads: list[Tensor]) -> None:
        if len(self.places) == len(stacks[0]):
            self.rule.update(chunk, stacks, grads, self._factors, self.flags)
            return
        rows = [self._rows(stack) for stack in stacks]
        self.rule.update(chunk, rows, [self._rows(grad) for grad in grads], self._factors, self.flags)
        if not self._is_contiguous:
            for stack, updated in zip(stacks, rows, strict=True):
                stack.index_copy_(0, self._row_index(stack), updated)

    def _make_buffers(self, chunk: Chunk, rows: Sequence[int]) -> None:
        """Make the state that these lanes are going to have, as it is before their first step."""
        for row in rows:
            for name in self._buffer_names(row):
                chunk.flat(name, self._factors.get(self.rule.fills.get(name, "")))

    def _buffer_names(self, row: int) -> tuple[str, ...]:
        numbers = {name: value[row] if isinstance(value, tuple) else value for name, value in self._numbers.items()}
        return self.rule.buffers({**self.flags, **numbers})

    def lane_state(self, row: int) -> dict[int, ParamState]:
        """Return copies of what torch would keep for each parameter of one lane."""
        names = self._buffer_names(row)
        state: dict[int, ParamState] = {}
        for chunk in self._chunks:
            steps = chunk.steps_of(row)
            if not steps and not self.rule.keeps_state_from_the_start:
                continue
            for name in names:
                fill = self._factors.get(self.rule.fills.get(name, ""))
                chunk.flat(name, fill)
                for place, view in zip(chunk.places, chunk.views(name), strict=True):
                    kept = state.setdefault(place, {"step": _step_tensor(steps)} if self.rule.counts_steps else {})
                    copied = view[row].clone(memory_format=torch.contiguous_format)
                    kept[name] = torch.view_as_complex(copied) if place in self._complex else copied
        return state

    def narrow(self, places: Sequence[int]) -> bool:
        """Keep the lanes at these places among all lanes; tell whether any lane of this part is left."""
        rows_by_place = {place: row for row, place in enumerate(self.places)}
        kept = [(new, rows_by_place[old]) for new, old in enumerate(places) if old in rows_by_place]
        self.places = tuple(new for new, _ in kept)
        self._index = None
        for chunk in self._chunks if kept else []:
            chunk.narrow([row for _, row in kept])
        return bool(kept)

    @property
    def _is_contiguous(self) -> bool:
        return self.places[-1] - self.places[0] == len(self.places) - 1

    def _rows(self, stack: Tensor) -> Tensor:
        if self._is_contiguous:
            return stack.narrow(0, self.places[0], len(self.places))
        return stack.index_select(0, self._row_index(stack))

    def _row_index(self, stack: Tensor) -> Tensor:
        if self._index is None or self._index.device != stack.device:
            self._index = devices.send(torch.tensor(self.places), stack.device)
        return self._index

    def _stepping_chunks(self, grads: Sequence[Tensor | None]) -> list[Chunk]:
        """Return the chunks with gradients; one that has them for some parameters only falls in two, for good."""
        if all(grad is not None for grad in grads):
            return self._chunks
        with_grad = {place for place, grad in enumerate(grads) if grad is not None}
        chunks: list[Chunk] = []
        for chunk in self._chunks:
            is_mixed = 0 < len(with_grad.intersection(chunk.places)) < len(chunk.places)
            chunks.extend(chunk.split(with_grad) if is_mixed else [chunk])
        self._chunks = chunks
        return [chunk for chunk in chunks if chunk.places[0] in with_grad]

    def _steps_in(self, kept: ParamState | None) -> float:
        if not kept:
            return 0
        return float(kept["step"]) if self.rule.counts_steps else float(kept.get("momentum_buffer") is not None)

    def _fill(self, chunk: Chunk, states: Sequence[Mapping[int, ParamState]]) -> None:
        for row, state in enumerate(states):
            for index, place in enumerate(chunk.places):
                for name, tensor in state.get(place, {}).items():
                    if name != "step" and tensor is not None:
                        chunk.flat(name, self._factors.get(self.rule.fills.get(name, "")))
                        chunk.views(name)[index][row].copy_(_as_real(tensor))


class LoopedPart:
    """Lanes whose optimizer has no rule: a real instance each, on views of the lane's weights.

    As slow as separate optimizers. The class must be one of `torch.optim`, or pass the check on its source
    (`optimizer_source`); and then the first step of each instance must equal that of a copy on its own.
    """

    def __init__(self, factories: Mapping[int, Factory], groups: Sequence[Mapping[str, Any]], settings: Any) -> None:
        self.reals: dict[int, Optimizer] = {}
        self._seen: list[dict[str, Any]] = []
        for optimizer_class in dict.fromkeys(map(class_of, factories.values())):
            _refuse_closures(optimizer_class)
            require_plain_optimizer(optimizer_class)
        before = _random_states() if factories else []
        for place, factory in factories.items():
            own_groups = [_lane_group(group, place) for group in groups]
            self.reals[place] = factory(own_groups, **pick(settings, place))
        if factories and not _are_equal(before, _random_states()):
            raise CannotFuseError("the optimizer draws random numbers when it is made, which lanes cannot share")
        self._unchecked = [real for real in self.reals.values() if not type(real).__module__.startswith("torch.optim")]

    def follow(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Give the instances the hyperparameters that have been assigned since the last call, and new groups."""
        if not self.reals:
            return
        for number, group in enumerate(groups):
            if number == len(self._seen):
                self._seen.append({key: value for key, value in group.items() if key != "params"})
                self._add_missing(number, group)
            seen = self._seen[number]
            for key, value in group.items():
                if key != "params" and (key not in seen or seen[key] is not value):
                    seen[key] = value
                    for place, real in self.reals.items():
                        _assign(real.param_groups[number], key, pick(value, place))

    def step(self, groups: Sequence[Mapping[str, Any]], skipped: Collection[int] = frozenset()) -> None:
        """Let each instance step on its lane, but for those that are skipped.

        Raises:
            CannotFuseError: A first step is not that of an optimizer alone, or a step changes the parameter groups.
        """
        self.follow(groups)
        for place, real in self.reals.items():
            if place in skipped:
                continue
            is_first = any(real is each for each in self._unchecked)
            before = [dict(group) for group in real.param_groups]
            with _lent(real, place, groups):
                alone = _step_alone(real) if is_first else None
                real.step()
                if alone is not None and not _are_equal(_contents(real), alone):
                    raise CannotFuseError(f"{type(real).__name__} steps otherwise in a group than alone")
            if not _are_same_groups(before, real.param_groups):
                raise CannotFuseError(f"{type(real).__name__} changes its parameter groups in `step`")
            if is_first:
                self._unchecked = [each for each in self._unchecked if each is not real]

    def lane_state(self, place: int, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a copy of the state dict of one lane's instance."""
        self.follow(groups)
        return copy.deepcopy(self.reals[place].state_dict())

    def load(self, states: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> None:
        """Give each instance its state dict, which holds the hyperparameters that the groups have now."""
        self.follow(groups)
        for place, real in self.reals.items():
            real.load_state_dict(copy.deepcopy(dict(states[place])))

    def narrow(self, places: Sequence[int]) -> None:
        """Keep the lanes at these places among all lanes."""
        self.reals = {new: self.reals[old] for new, old in enumerate(places) if old in self.reals}

    def _add_missing(self, number: int, group: Mapping[str, Any]) -> None:
        for place, real in self.reals.items():
            if number == len(real.param_groups):
                real.add_param_group(_lane_group(group, place))


def _as_real(tensor: Tensor) -> Tensor:
    """Return complex numbers as pairs of real ones in the same memory, all others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _step_alone(real: Optimizer) -> Any:
    """Return the weights and the state after the step of a copy that shares nothing with the optimizer."""
    alone = copy.deepcopy(real)
    for group, own in zip(real.param_groups, alone.param_groups, strict=True):
        _require_plain_settings(real, group)
        for param, copied in zip(group["params"], own["params"], strict=True):
            copied.grad = None if param.grad is None else param.grad.clone()
    before = _random_states()
    alone.step()
    if not _are_equal(before, _random_states()):
        raise CannotFuseError(f"{type(real).__name__} draws random numbers in `step`, which lanes cannot share")
    return _contents(alone)


def _require_plain_settings(real: Optimizer, group: Mapping[str, Any]) -> None:
    for key, value in group.items():
        items = value if isinstance(value, tuple) else (value,)
        if key != "params" and not all(isinstance(item, int | float | str | None) for item in items):
            raise CannotFuseError(
                f"{type(real).__name__} has a {type(value).__name__} for {key}; lanes take numbers, texts and tuples"
            )


def _contents(optimizer: Optimizer) -> Any:
    """Return copies of the weights and the state."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [[param.detach().clone() for param in params], copy.deepcopy(optimizer.state_dict()["state"])]


def _are_same_groups(before: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> bool:
    return len(before) == len(groups) and all(
        then.keys() == now.keys() and all(then[key] is now[key] for key in then)
        for then, now in zip(before, groups, strict=True)
    )


def _are_equal(one: Any, other: Any) -> bool:
    """Tell whether two nests of containers, tensors and numbers are equal to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        is_alike = one.shape == other.shape and one.dtype == other.dtype
        return is_alike and torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return bool(one == other or (one != one and other != other))


def _random_states() -> list[Any]:
    """Return where the streams of random numbers stand that code may draw from without naming one."""
    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()]
    return [*states, *devices.read_generators()]


@contextmanager
def _lent(real: Optimizer, place: int, groups: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Lend an instance the weights and gradients of its lane, and take the weights back."""
    stacks = [[stack_of(param) for param in group["params"]] for group in groups]
    pairs = [
        (param, stack)
        for group, group_stacks in zip(real.param_groups, stacks, strict=True)
        for param, stack in zip(group["params"], group_stacks, strict=True)
    ]
    for param, stack in pairs:
        param.data = stack.detach()[place]
        param.grad = None if stack.grad is None else stack.grad[place]
    yield
    for param, stack in pairs:
        view = stack.detach()[place]
        if param.data_ptr() != view.data_ptr():
            view.copy_(param.detach())


def class_of(factory: Factory) -> type[Optimizer]:
    """Return the class that a factory makes: itself, or what a `functools.partial` calls."""
    while isinstance(factory, partial):
        factory = factory.func
    if not (isinstance(factory, type) and issubclass(factory, Optimizer)):
        raise TypeError(f"{factory!r} is no optimizer; pass a class of torch.optim, its name, or your own subclass")
    return factory


def _lane_group(group: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a parameter group of one lane, on views of its weights."""
    lane_group = {key: pick(value, place) for key, value in group.items() if key not in ("params", "param_names")}
    tensors = [item[1] if isinstance(item, tuple) else item for item in group["params"]]
    stacks = [stack_of(tensor) for tensor in tensors]
    return {**lane_group, "params": [nn.Parameter(stack.detach()[place], stack.requires_grad) for stack in stacks]}


def _assign(group: dict[str, Any], key: str, value: Any) -> None:
    """Set a hyperparameter, unless only other lanes' optimizers know it."""
    if value is not None or key in group:
        group[key] = value


def _refuse_closures(optimizer_class: type[Optimizer]) -> None:
    closure = inspect.signature(optimizer_class.step).parameters.get("closure")
    if optimizer_class is torch.optim.LBFGS or (closure is not None and closure.default is inspect.Parameter.empty):
        raise CannotFuseError(
            f"{optimizer_class.__name__} evaluates its closure as often as it likes, so its lanes cannot go in step"
        )


def _step_tensor(steps: float) -> Tensor:
    """Return the step count as torch keeps it."""
    wide = torch.get_default_dtype() == torch.float64
    return torch.tensor(float(steps), dtype=torch.float64 if wide else torch.float32)
