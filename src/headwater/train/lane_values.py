"""The values of one lane among those of a group: read out of what stands for all lanes, and joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.apart import is_per_lane
from headwater.fuse.arrays import PerLaneArray
from headwater.fuse.per_lane import PerLane, lane_value, same
from headwater.fuse.roster import Roster
from headwater.fuse.swaps import Swaps
from headwater.fuse.targets import narrow, promote
from headwater.torch_private import DisableTorchFunction, is_lane_tensor, lanes_of, stack_of, swap
from headwater.train.snapshot import find_grad, put_numbers

Entry = Mapping[str, Any]


class LaneValues(Protocol):
    """Reads and writes values for the lanes of a run."""

    device: torch.device

    def read(self, value: Any, place: int) -> Any:
        """Return a value as the lane at this place alone would have it."""

    def row(self, tensor: Tensor, place: int) -> Tensor:
        """Return a copy of the numbers that a tensor holds for a lane."""

    def grad(self, tensor: Tensor, place: int) -> Tensor | None:
        """Return a copy of the gradient of a weight for a lane."""

    def memory(self, thing: Any) -> tuple[int, Any]:
        """Return where the memory of a tensor or an array begins, and which part of it is shown; 0 for no memory."""

    def is_plain(self, tensor: Any) -> bool:
        """Tell whether something is a tensor that all lanes share."""

    def refuse(self, reason: str) -> Exception:
        """Return the exception for lanes whose values cannot be one."""

    def join(self, values: Sequence[Any]) -> Any:
        """Return what stands for the values of all lanes."""

    def join_arrays(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        """Return what stands for the arrays of all lanes."""

    def make_tensor(self, entries: Sequence[Entry], kind: type) -> Tensor:
        """Return a new tensor with the numbers of all lanes."""

    def put_tensor(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Give a tensor the numbers of all lanes."""

    def put_array(self, array: np.ndarray[Any, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Give an array the numbers of all lanes."""

    def put_weight(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Give a weight of a prepared model its gradient, and say whether it takes any."""


class OneLane:
    """The values of a trial alone."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def read(self, value: Any, place: int) -> Any:
        """Return the value itself."""
        return value

    def row(self, tensor: Tensor, place: int) -> Tensor:
        """Return a copy of the tensor."""
        return tensor.detach().clone()

    def grad(self, tensor: Tensor, place: int) -> Tensor | None:
        """Return a copy of the gradient."""
        return None if tensor.grad is None else tensor.grad.detach().clone()

    def memory(self, thing: Any) -> tuple[int, Any]:
        """Return the storage and the view of a tensor, or the buffer of an array."""
        return find_memory(thing)

    def is_plain(self, tensor: Any) -> bool:
        """Tell whether something is a tensor."""
        return isinstance(tensor, Tensor)

    def refuse(self, reason: str) -> Exception:
        """Never happens: one lane's values are always one."""
        return CannotFuseError(reason)

    def join(self, values: Sequence[Any]) -> Any:
        """Return the one value."""
        return values[0]

    def join_arrays(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        """Return the one array."""
        return arrays[0]

    def make_tensor(self, entries: Sequence[Entry], kind: type) -> Tensor:
        """Return the tensor, or a parameter."""
        entry = entries[0]
        values: Tensor = entry["values"].clone()
        values = values.to(self.device) if entry["is_on_device"] else values
        made = nn.Parameter(values, entry["requires_grad"]) if kind is nn.Parameter else values
        self.put_weight(made, entries)
        return _cut_graph(made) if entry["has_graph"] else made

    def put_tensor(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Copy the numbers."""
        put_numbers(tensor, entries[0]["values"])
        self.put_weight(tensor, entries)

    def put_array(self, array: np.ndarray[Any, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Copy the numbers."""
        if array.shape != arrays[0].shape:
            array.resize(arrays[0].shape, refcheck=False)
        np.copyto(array, arrays[0])

    def put_weight(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Set the gradient."""
        if tensor.is_leaf:
            tensor.requires_grad_(entries[0]["requires_grad"])
            grad = entries[0].get("grad")
            tensor.grad = None if grad is None else grad.to(tensor.device).clone()


class ManyLanes:
    """The values of the lanes of a group."""

    def __init__(self, roster: Roster, swaps: Swaps, device: torch.device) -> None:
        self._roster = roster
        self._swaps = swaps
        self.device = device

    def read(self, value: Any, place: int) -> Any:
        """Return the value of the lane."""
        return value.values[place] if is_per_lane(value) and isinstance(value, PerLane) else value

    def row(self, tensor: Tensor, place: int) -> Tensor:
        """Copy a row of the stack."""
        with DisableTorchFunction(), torch.no_grad():
            if not is_lane_tensor(tensor):
                return tensor.detach().clone()
            narrow(tensor, self._roster)
            return stack_of(tensor).detach()[place].clone()

    def grad(self, tensor: Tensor, place: int) -> Tensor | None:
        """Copy a row of the gradient of the stack."""
        with DisableTorchFunction(), torch.no_grad():
            if not is_lane_tensor(tensor):
                return None if tensor.grad is None else tensor.grad.detach().clone()
            narrow(tensor, self._roster)
            grad = stack_of(tensor).grad
            return None if grad is None else grad[place].clone()

    def memory(self, thing: Any) -> tuple[int, Any]:
        """Return the storage of the stack."""
        with DisableTorchFunction():
            if isinstance(thing, Tensor) and is_lane_tensor(thing):
                narrow(thing, self._roster)
                return find_memory(stack_of(thing))
            return find_memory(thing)

    def is_plain(self, tensor: Any) -> bool:
        """Tell whether something is a tensor without lanes."""
        return isinstance(tensor, Tensor) and not is_lane_tensor(tensor)

    def refuse(self, reason: str) -> Exception:
        """Note that the lanes cannot go on as one."""
        reason = f"after a pause, {reason}"
        self._roster.refuse(reason)
        return CannotFuseError(reason)

    def join(self, values: Sequence[Any]) -> Any:
        """Return the common value, or numbers and texts by lane."""
        if all(same(values[0], value) for value in values):
            return values[0]
        is_number = all(isinstance(value, bool | int | float | complex | np.generic) for value in values)
        if is_number or all(type(value) is str for value in values):
            return lane_value(values, self._roster, None)
        raise self.refuse("lanes hold values of different kinds")

    def join_arrays(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        """Return the common array, or one per lane."""
        if len(arrays) == 1:
            return arrays[0]
        if len({(array.shape, array.dtype) for array in arrays}) > 1:
            raise self.refuse("lanes hold arrays of different shapes")
        return PerLaneArray(arrays, self._roster)

    def _stack(self, entries: Sequence[Entry], part: str = "values") -> Tensor:
        rows = [entry[part] for entry in entries]
        if len({(row.shape, row.dtype) for row in rows}) > 1:
            raise self.refuse("lanes hold tensors of different shapes")
        if len({entry["requires_grad"] for entry in entries}) > 1:
            raise self.refuse("lanes differ in which tensors take gradients")
        return torch.stack(rows)

    def make_tensor(self, entries: Sequence[Entry], kind: type) -> Tensor:
        """Return a lane tensor."""
        with DisableTorchFunction(), torch.no_grad():
            stack = self._stack(entries)
            stack = stack.to(self.device) if entries[0]["is_on_device"] else stack
            stack.requires_grad_(entries[0]["requires_grad"])
            lanes = lanes_of(_cut_graph(stack) if entries[0]["has_graph"] else stack)
            self.put_weight(lanes, entries)
            if kind is not nn.Parameter:
                return lanes
            parameter = nn.Parameter(torch.empty(stack.shape[1:], dtype=stack.dtype), entries[0]["requires_grad"])
            swap(parameter, lanes)
            return parameter

    def put_tensor(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Copy the numbers of all lanes into the stack; make a plain tensor a lane tensor where they differ."""
        with DisableTorchFunction(), torch.no_grad():
            stack = self._stack(entries)
            if not is_lane_tensor(tensor):
                has_grads = any(entry.get("grad") is not None for entry in entries)
                is_common = not has_grads and all(torch.equal(stack[0], row) for row in stack[1:])
                if is_common and tensor.shape == stack.shape[1:]:
                    put_numbers(tensor, stack[0])
                    self.put_weight(tensor, entries)
                    return
                if tensor.requires_grad:
                    self._swaps.turn(tensor, stack.to(tensor.device).clone().requires_grad_())
                else:
                    promote(tensor, len(self._roster), "going on after a pause", self._swaps)
            if stack_of(tensor).shape != stack.shape:
                raise self.refuse("a tensor has another shape than at the start")
            stack_of(tensor).data.copy_(stack)
            self.put_weight(tensor, entries)

    def put_array(self, array: np.ndarray[Any, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Copy the numbers if they are the same in all lanes."""
        if any(array.shape != other.shape or other.tobytes() != arrays[0].tobytes() for other in arrays):
            raise self.refuse("an array that all lanes share has other numbers in each")
        np.copyto(array, arrays[0])

    def put_weight(self, tensor: Tensor, entries: Sequence[Entry]) -> None:
        """Set the gradient of the stack."""
        grads = [entry.get("grad") for entry in entries]
        if len({(grad is None, entry["requires_grad"]) for grad, entry in zip(grads, entries, strict=True)}) > 1:
            raise self.refuse("lanes differ in which tensors have gradients")
        with DisableTorchFunction():
            stack = stack_of(tensor) if is_lane_tensor(tensor) else tensor
            if not stack.is_leaf:
                return
            stack.requires_grad_(entries[0]["requires_grad"])
            if grads[0] is None:
                stack.grad = None
            else:
                stack.grad = (
                    torch.stack([grad for grad in grads if grad is not None])
                    if is_lane_tensor(tensor)
                    else grads[0].clone()
                ).to(stack.device)


def _cut_graph(values: Tensor) -> Tensor:
    """Return a tensor that was computed before the pause; a backward pass through it raises an exception.

    The graph is not saved. Code that only reads the number, as most does, is not concerned.
    """

    def refuse(_: Tensor) -> None:
        raise RuntimeError(
            "a backward pass goes through a tensor that was computed before a pause of the trial, whose graph is gone; "
            "detach the tensor, or compute it anew in each epoch"
        )

    values.register_hook(refuse)
    with torch.enable_grad():
        return values.clone()


def find_grad_storages(tensor: Tensor) -> set[int]:
    """Return the storage of the gradient of a tensor, if it has one."""
    grad = find_grad(tensor)
    return set() if grad is None else {find_memory(grad)[0]}


def find_memory(thing: Any) -> tuple[int, Any]:
    """Return where the memory of a tensor or an array begins, and which part of it is shown; 0 for no memory."""
    if isinstance(thing, Tensor):
        with DisableTorchFunction():
            view = (thing.dtype, thing.storage_offset(), tuple(thing.shape), tuple(thing.stride()))
            return (thing.untyped_storage().data_ptr() if thing.numel() else 0), view
    base = thing
    while isinstance(base.base, np.ndarray):
        base = base.base
    return (base.__array_interface__["data"][0] if base.size else 0), None
