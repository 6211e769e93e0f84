"""Tensors that change under their holders: a plain one takes in lanes' values, a kept one loses the lanes that left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.narrowed_memory import NarrowedMemory
from headwater.fuse.roster import Roster
from headwater.fuse.swaps import Swaps
from headwater.torch_private import (
    accumulation_hooks_of,
    base_of,
    gradient_hooks_of,
    is_lane_tensor,
    lanes_of,
    move_hooks,
    num_holders,
    num_uses,
    owns_memory,
    stack_of,
    swap,
)

_OPERATORS = frozenset(
    f"__i{name}__"
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    ]
) | {"__setitem__"}


def writes_in_place(func: Any) -> bool:
    """Tell by its name whether a torch function writes into its first argument."""
    name: str = getattr(func, "__name__", "")
    return name[-1:] == "_" and (name[-2:] != "__" or name in _OPERATORS)


def target_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function that works in place writes into."""
    return args[0] if args else kwargs.get("tensor", kwargs.get("input"))


def widen(plain: Tensor, num_lanes: int) -> Tensor:
    """Return a stack that holds `plain` once per lane, without copying it."""
    return plain.unsqueeze(0).expand(num_lanes, *plain.shape)


def promote(target: Tensor, num_lanes: int, name: str, swaps: Swaps) -> None:
    """Make a plain tensor that is about to take in lanes' values a lane tensor, for everyone who holds it.

    Raises:
        CannotFuseError: Other tensors share its memory and would miss what is written.
    """
    if target.requires_grad:
        raise CannotFuseError(
            f"{name} writes lanes' values into a tensor of shape {tuple(target.shape)} that all lanes share; "
            "pass the module that holds it to trial.prepare_model"
        )
    if base_of(target) is not None:
        _promote_view(target, num_lanes, name, swaps)
        return
    if _is_shared(target):
        raise _shared_memory(target, name)
    swaps.turn(target, widen(target, num_lanes).clone())


def promote_weight(
    weight: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], num_lanes: int, swaps: Swaps
) -> bool:
    """Make a weight of a model that is yet to be prepared a lane tensor, where numbers initialise it; tell whether."""
    given = [value for value in (*args, *kwargs.values()) if value is not weight]
    is_alone = isinstance(weight, nn.Parameter) and not _is_shared(weight)
    if not is_alone or any(isinstance(value, Tensor) for value in given):
        return False
    with torch.enable_grad():
        swaps.turn(weight, widen(weight.detach(), num_lanes).clone().requires_grad_())
    return True


def promote_statistics(args: Sequence[Any], kwargs: Mapping[str, Any], num_lanes: int, swaps: Swaps) -> None:
    """Give each lane running statistics of its own: a norm moves them on in place, and does not say so.

    The arguments are those of `batch_norm` or `instance_norm`.
    """
    moves = kwargs.get("training", kwargs.get("use_input_stats", args[5] if len(args) > 5 else True))
    named = (kwargs.get("running_mean"), kwargs.get("running_var"))
    for tensor in (*args[1:3], *named) if moves else ():
        if isinstance(tensor, Tensor) and not is_lane_tensor(tensor):
            promote(tensor, num_lanes, "a norm", swaps)


NORMS = frozenset({F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm})
"""Whose running statistics are written into, without a trace in their name or version."""


def claim_gradient(tensor: Tensor, num_lanes: int, swaps: Swaps) -> None:
    """Turn a plain tensor whose gradient the user wants into a lane tensor, for each lane has another gradient.

    A parameter stays plain: it belongs to a module that is yet to be prepared.
    """
    wanted = tensor.requires_grad and tensor.is_leaf and tensor.numel() > 0
    if wanted and not isinstance(tensor, nn.Parameter):
        if _is_shared(tensor):
            raise _shared_memory(tensor, "requires_grad_")
        swaps.turn(tensor, widen(tensor.detach(), num_lanes).clone().requires_grad_())
        tensor._claimed = True  # type: ignore[attr-defined]  # until a parameter is made of it


def narrow(tensor: Tensor, roster: Roster) -> None:
    """Drop from a lane tensor, for everyone who holds it, the lanes that have left."""
    if not is_lane_tensor(tensor):
        return
    stack = stack_of(tensor)
    while stack.shape[0] != len(roster):
        stack = _keep(stack, roster.places_since(stack.shape[0]), roster.memory)
        swap(tensor, lanes_of(stack))


def _keep(stack: Tensor, places: list[int], memory: NarrowedMemory) -> Tensor:
    kept, places = memory.keep(stack, places)
    if not stack.requires_grad:
        return kept
    if stack.is_leaf:
        kept.requires_grad_()
        _hand_over(stack, kept, places, memory)
        return kept
    grown = stack[places]
    grown.data = kept
    return grown


def _hand_over(stack: Tensor, heir: Tensor, places: list[int], memory: NarrowedMemory) -> None:
    """Give the heir the gradient and the hooks; a graph from before sends it the gradients that come late."""
    if stack.grad is not None:
        heir.grad, stack.grad = memory.keep(stack.grad, places)[0], None
    move_hooks(stack, heir)

    def pass_on(left: Tensor) -> None:
        assert left.grad is not None
        grad, left.grad = left.grad[places], None
        for hook in list(gradient_hooks_of(heir).values()):
            answer = hook(grad)
            grad = grad if answer is None else answer
        heir.grad = grad if heir.grad is None else heir.grad + grad
        for hook in list(accumulation_hooks_of(heir).values()):
            hook(heir)

    stack.register_post_accumulate_grad_hook(pass_on)


def _promote_view(view: Tensor, num_lanes: int, name: str, swaps: Swaps) -> None:
    """Promote a view together with the one tensor that it shows a part of."""
    base = base_of(view)
    if base is None or base.requires_grad or num_holders(view) > 2 or not _fills_its_memory(base):
        raise _shared_memory(view, name)
    if num_uses(view) > 1 or num_uses(base) > 2:
        raise _shared_memory(view, name)
    stack = widen(base, num_lanes).contiguous()
    strides, offset = (base.numel(), *view.stride()), view.storage_offset()
    view_stack = stack.as_strided((num_lanes, *view.shape), strides, offset)
    swaps.turn(view, view_stack)
    swaps.turn(base, stack)


def _fills_its_memory(base: Tensor) -> bool:
    storage = base.untyped_storage()
    whole = base.storage_offset() == 0 and storage.nbytes() == base.numel() * base.element_size()
    return whole and base.is_contiguous() and owns_memory(base)


def _is_shared(tensor: Tensor) -> bool:
    """Tell whether other tensors, a graph, a NumPy array or a file see the memory of a tensor."""
    return num_holders(tensor) > 1 or num_uses(tensor) > 1 or not owns_memory(tensor)


def _shared_memory(tensor: Tensor, name: str) -> CannotFuseError:
    return CannotFuseError(
        f"{name} writes lanes' values into a tensor of shape {tuple(tensor.shape)} whose memory other tensors share; "
        "write into a clone() of it"
    )


def write_out(out: Any, answer: Any, num_lanes: int, swaps: Swaps) -> Any:
    """Put the answer of a call into the tensor that it was given as `out=`."""
    if not isinstance(out, Tensor) or not isinstance(answer, Tensor) or out.shape != answer.shape:
        raise CannotFuseError("`out=` with lanes takes one tensor of the shape of the result")
    if torch.is_grad_enabled() and is_lane_tensor(answer) and stack_of(answer).requires_grad:
        raise RuntimeError("functions with out=... arguments don't support automatic differentiation")
    if not is_lane_tensor(out):
        promote(out, num_lanes, "out=", swaps)
    with torch.no_grad():
        stack_of(out).copy_(stack_of(answer) if is_lane_tensor(answer) else answer)
    return out
