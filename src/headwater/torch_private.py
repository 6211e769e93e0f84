"""The private calls of torch, all of them, so that a torch release can break one module only.

A *lane tensor* is functorch's own batched tensor at level one: Python sees the shape of one model, memory holds
all lanes. Its memory is the *stack*, whose first dimension counts the lanes. No level is open between calls; whoever
computes with lane tensors opens one for the length of a call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as C
from torch.autograd.function import _SingleLevelFunction
from torch.autograd.graph import _engine_run_backward
from torch.overrides import _get_current_function_mode_stack

LEVEL = 1

is_lane_tensor = C.is_batchedtensor

memory_of = C.get_unwrapped
"""Returns the tensor that a lane tensor holds, wherever its lanes lie."""

FUNCTION_BASE = _SingleLevelFunction
"""Where every `Function.apply` ends before it goes to C++, one that was taken from its class long ago too."""

is_transforming = torch._C._are_functorch_transforms_active
"""Tells whether a functorch level is open: one of ours, or one of the user's own `torch.func` calls."""

is_asked = torch._C._is_torch_function_enabled
"""Tells whether torch asks modes, and classes like tensors, what a call is to do."""

warn_of_slow_batching = C._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]  # not in torch's stubs
"""Sets whether torch warns where it batches an operator by a loop; torch starts with True and cannot be asked."""


def lanes_of(stack: Tensor) -> Tensor:
    """Show the stack as a lane tensor: its first dimension disappears from sight."""
    lane_tensor: Tensor = C._add_batch_dim(stack, 0, LEVEL)
    return lane_tensor


def stack_of(lane_tensor: Tensor) -> Tensor:
    """Return the memory of a lane tensor with the lanes first; the same object as long as they were first."""
    stack: Tensor = C.get_unwrapped(lane_tensor)
    position = C.maybe_get_bdim(lane_tensor)
    return stack if position == 0 else stack.movedim(position, 0)


def settled_stack_of(lane_tensor: Tensor) -> Tensor:
    """Return the stack that the lane tensor holds from now on, so that what is hung on it stays with the tensor."""
    if C.maybe_get_bdim(lane_tensor) != 0:
        swap(lane_tensor, lanes_of(stack_of(lane_tensor)))
    stack: Tensor = C.get_unwrapped(lane_tensor)
    return stack


@contextmanager
def vmap_level(num_lanes: int) -> Iterator[None]:
    """Open one vmap level, in which torch's batching rules compute with lane tensors.

    Random numbers are the same in all lanes: exactly those that one model alone would draw.
    """
    level = C._vmap_increment_nesting(num_lanes, "same")
    try:
        if level != LEVEL:
            raise RuntimeError("vmap: lane tensors cannot be used inside another functorch transform")
        yield
    finally:
        C._vmap_decrement_nesting()


def call_in_level(num_lanes: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do one call in a vmap level; the short way of `vmap_level`, for there are many calls."""
    C._vmap_increment_nesting(num_lanes, "same")
    try:
        return func(*args, **kwargs)
    finally:
        C._vmap_decrement_nesting()


def swap(tensor: Tensor, other: Tensor) -> None:
    """Exchange what two tensors hold, for everyone who holds them, weakly too; classes and attributes stay.

    Unlike `torch.utils.swap_tensors` it asks for no tensor without weak references: they follow the Python object,
    and an `nn.LSTM` has them of all its weights.
    """
    torch._C._swap_tensor_impl(tensor, other)


# The next three functions decide whether a plain tensor may become a lane tensor: numbers depend on their answers. The
# counts are no guess: torch and Python free memory by them. A holder that they missed would be left with freed memory,
# so that a count of one proves that there is no other holder. A count that is too high, by a temporary holder, makes
# lanes train separately. Memory that is not freed by these counts is told by `owns_memory`.


def num_uses(tensor: Tensor) -> int:
    """Count who keeps this very tensor: Python, its views, and autograd for a backward pass that is to come."""
    count: int = tensor._use_count()  # type: ignore[attr-defined]  # not in torch's stubs
    return count


_FRESH = torch.empty(1)
_NOT_HELD = sys.getrefcount(_FRESH.untyped_storage())


def num_holders(tensor: Tensor) -> int:
    """Count the tensors that share the memory of this one, itself included, and code that holds the storage object."""
    num_held = sys.getrefcount(tensor.untyped_storage()) - _NOT_HELD
    holders: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return holders - 1 + num_held  # torch keeps one storage object for all who ask


def owns_memory(tensor: Tensor) -> bool:
    """Tell whether the memory of a tensor is torch's alone: no array, buffer, file or other process sees it."""
    is_sent = tensor.device.type == "cpu" and tensor.is_shared()  # torch says so of all memory of accelerators
    return tensor.untyped_storage().resizable() and not is_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardOptions:
    """How autograd goes back through a graph."""

    retain_graph: bool
    create_graph: bool
    accumulate: bool = True
    """Whether gradients are added to the leaves, or returned."""
    allow_unused: bool = True


def run_backward(
    roots: Sequence[Tensor], seeds: Sequence[Tensor], inputs: Sequence[Tensor], options: BackwardOptions
) -> tuple[Tensor | None, ...]:
    """Run the engine of autograd on stacks; unlike `torch.autograd.backward` it leaves the modes on for the hooks."""
    answers: tuple[Tensor | None, ...] = _engine_run_backward(
        tuple(roots),
        tuple(seeds),
        options.retain_graph,
        options.create_graph,
        tuple(inputs),
        allow_unreachable=options.allow_unused,
        accumulate_grad=options.accumulate,
    )
    return answers


def saves_elsewhere() -> bool:
    """Tell whether what autograd saves now goes to somebody's hooks: a checkpoint's, above all."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def apply_plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a `Function` where no lane mode looks at its arguments."""
    return vars(torch._C._FunctionBase)["apply"].__get__(None, function)(*args, **kwargs)


def keeps_graph() -> bool:
    """Tell whether the backward pass that runs now is to leave its graph in place."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


class StackFunction(torch.autograd.Function):
    """A function of stacks, which need no look for lanes among its arguments."""

    apply: Any = classmethod(apply_plainly)


def active_modes() -> list[Any]:
    """Return the torch-function modes that are on in this thread, the outermost first."""
    modes: list[Any] = _get_current_function_mode_stack()
    return modes
