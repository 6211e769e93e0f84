"""The user's own models as they were before a run trained them, so that every trial starts from the same.

A model that is given to `prepare_model` is itself what trains. It may live longer than the run, in a global variable or
a closure, and then the next trial must find it as this one did.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from random import Random
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from headwater.torch_private import hook_tables_of, is_lane_tensor

_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_NOT_FOLLOWED = ("headwater", "torch")
"""Packages whose objects are no part of a model, other than modules."""


class Originals:
    """What the models of a run were when they were prepared: weights, buffers, gradients, flags, hooks and attributes.

    Objects keep their identity: what they held is put back into them. Attributes are followed through containers and
    plain objects; an object that says itself how it is copied (`__deepcopy__`, `__reduce__`) is left alone.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}
        """Everything that was looked at, held so that ids stay theirs."""
        self._undo: list[Callable[[], object]] = []

    def keep(self, *items: Any) -> None:
        """Remember models, or loose parameters, as they are now; what was remembered before stands."""
        waiting = list(items)
        while waiting:
            item = waiting.pop()
            if id(item) not in self._kept:
                self._kept[id(item)] = item
                waiting.extend(self._remember(item))

    def restore(self) -> None:
        """Put everything back."""
        with torch.no_grad():
            for undo in reversed(self._undo):
                undo()
        self._undo.clear()
        self._kept.clear()

    def _remember(self, item: Any) -> Iterator[Any]:
        """Note how to put one object back, and yield what it holds."""
        if isinstance(item, Tensor):
            self._undo.extend(_keep_tensor(item))
        elif type(item) in _CONTAINERS:
            self._undo.append(_keep_container(item))
            yield from item.values() if isinstance(item, dict) else item
        elif isinstance(item, tuple):
            yield from item
        elif isinstance(item, MethodType):
            yield item.__self__
        elif isinstance(item, nn.Module) or _is_plain_object(item):
            self._undo.append(_keep_object(item))
            yield from vars(item).values()
        else:
            self._undo.extend(_keep_randomness(item))


def _keep_tensor(tensor: Tensor) -> Iterator[Callable[[], object]]:
    """Keep a tensor that belongs to no graph: another one is computed anew."""
    if is_lazy(tensor):
        yield _keep_lazy(tensor)
    elif not is_lane_tensor(tensor) and tensor.is_leaf and tensor.layout == torch.strided and not tensor.is_inference():
        yield _keep_leaf(tensor)


def _keep_leaf(tensor: Tensor) -> Callable[[], None]:
    values, memory, requires_grad = tensor.detach().clone(), tensor.data_ptr(), tensor.requires_grad
    grad, grad_values = tensor.grad, None if tensor.grad is None else tensor.grad.clone()
    hooks = [dict(table or {}) for table in hook_tables_of(tensor)]

    def undo() -> None:
        for table, before in zip(hook_tables_of(tensor), hooks, strict=True):
            if table is not None:
                table.clear()
                table.update(before)
        if tensor.data_ptr() == memory and tensor.shape == values.shape and tensor.dtype == values.dtype:
            tensor.data.copy_(values)  # others may see this memory
        else:
            tensor.data = values
        tensor.requires_grad_(requires_grad)
        tensor.grad = grad if grad is None or grad_values is None else grad.copy_(grad_values)

    return undo


def _keep_lazy(tensor: Any) -> Callable[[], None]:
    kind, empty = type(tensor), torch.empty(0, dtype=tensor.data.dtype, device=tensor.data.device)

    def undo() -> None:
        tensor.data = empty
        tensor.__class__ = kind

    return undo


def _keep_container(container: Any) -> Callable[[], None]:
    content = container.copy()

    def undo() -> None:
        container.clear()
        container.extend(content) if isinstance(container, list | deque) else container.update(content)

    return undo


def _keep_object(thing: Any) -> Callable[[], None]:
    kind, attributes = type(thing), dict(vars(thing))

    def undo() -> None:
        if type(thing) is not kind:
            thing.__class__ = kind  # a parametrized or lazy module changes its class
        vars(thing).clear()
        vars(thing).update(attributes)

    return undo


def _keep_randomness(item: Any) -> Iterator[Callable[[], object]]:
    """Keep where a generator of random numbers stands, and what an array holds."""
    if isinstance(item, torch.Generator):
        place = item.get_state()
        yield lambda: item.set_state(place)
    elif isinstance(item, Random):
        python_place = item.getstate()
        yield lambda: item.setstate(python_place)
    elif isinstance(item, np.random.Generator):
        numpy_place = item.bit_generator.state
        yield lambda: setattr(item.bit_generator, "state", numpy_place)
    elif isinstance(item, np.ndarray):
        values = item.copy()
        yield lambda: np.copyto(item, values)


def _is_plain_object(item: Any) -> bool:
    """Tell whether an object is nothing but its attributes."""
    kind: Any = type(item)
    if isinstance(item, type | FunctionType | ModuleType) or not hasattr(item, "__dict__"):
        return False
    if kind.__module__.partition(".")[0] in _NOT_FOLLOWED:
        return False
    is_copied_by_default = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
    return is_copied_by_default and not hasattr(kind, "__deepcopy__")
