"""How lanes lie in memory, and how one lane alone would.

The order of memory shows: torch draws random numbers in it, and views follow it. Convolutions and norms of lanes keep
the channels last, because that is faster, where one lane alone would not. What comes out of them is *displaced*: alone
it would be contiguous. Arithmetic hands that on, and before anything that the order of memory could make a difference
to, the lanes are laid out as each would lie alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.apart import Dice, per_lanes, split, tensors
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import OPERATORS, is_lane_tensor, lanes_of, stack_of, swap

_MARK = "_is_displaced"


def is_displaced(tensor: Tensor) -> bool:
    """Tell whether one lane of the tensor, alone, would be contiguous while it is not so here."""
    return getattr(tensor, _MARK, False)


def order_of(tensor: Tensor) -> list[int]:
    """Return the dimensions that have any length in the order in which they lie in memory."""
    strides = tensor.stride()
    return sorted((dim for dim, size in enumerate(tensor.shape) if size > 1), key=lambda dim: -strides[dim])


class Layouts:
    """Follows the displaced tensors of one mode."""

    def __init__(self) -> None:
        self.in_use = False
        """Whether there has been any displaced tensor yet."""
        self._orders_alone: dict[Hashable, list[int]] = {}

    def prepare(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Lay the arguments out where the call could tell the difference; return whether its answer is displaced."""
        if func in _ASKS:
            return False
        displaced = [tensor for tensor in tensors((*args, *kwargs.values())) if is_displaced(tensor)]
        if not displaced or func in REORDERING:
            return False
        if func in _KEEPS and all(_is_contiguous_alone(tensor) for tensor in tensors((*args, *kwargs.values()))):
            return True
        for tensor in displaced:
            swap(tensor, lanes_of(stack_of(tensor).contiguous()))
            setattr(tensor, _MARK, False)
        return False

    def displace(self, answer: Any) -> None:
        """Mark the tensors of an answer that would be contiguous alone."""
        for tensor in tensors([answer]):
            if is_lane_tensor(tensor) and not _is_contiguous_alone(tensor):
                setattr(tensor, _MARK, True)
                self.in_use = True

    def compare(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], answer: Tensor) -> Tensor:
        """Mark or lay out the answer of a call that may reorder, according to the answer of one lane alone."""
        if not is_lane_tensor(answer):
            return answer
        if func in FORMAT_READING and all(_is_contiguous_alone(each) for each in tensors((*args, *kwargs.values()))):
            return answer
        order = self._order_alone(func, args, kwargs)
        stack = stack_of(answer)
        if order == sorted(order) and not stack[0].is_contiguous():  # in another order, or with other lanes in between
            setattr(answer, _MARK, True)
            self.in_use = True
        if order in (sorted(order), order_of(stack[0])):
            return answer
        flat = [dim for dim in range(answer.dim()) if dim not in order]
        return lanes_of(_laid_out(stack, [*flat, *order]))

    def _order_alone(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int]:
        """Find out, once per kind of call, how the answer lies in memory where there are no lanes.

        The order may follow from a number that differs by lane: attention without dropout has a kernel of its own.
        Lanes with different orders part by that number.
        """
        named = (*((None, arg) for arg in args), *kwargs.items())
        rest = [(name, _spell(value)) for name, value in named if not any(True for _ in tensors([value]))]
        key = (func, *rest, *(_kind_alone(tensor) for tensor in tensors((*args, *kwargs.values()))))
        if key not in self._orders_alone:
            numbers = [*per_lanes((*args, *kwargs.values()))]
            num_lanes = len(numbers[0].values) if numbers else 1
            copies = split([_copied(arg) for arg in args], num_lanes), split(_copied(dict(kwargs)), num_lanes)
            orders = []
            dice = Dice(args, kwargs)
            for own_args, own_kwargs in zip(*copies, strict=True):
                with torch.no_grad():
                    orders.append(order_of(func(*own_args, **own_kwargs)))
                dice.rewind()
            if any(order != orders[0] for order in orders):
                for number in numbers:
                    number.one()  # raises where lanes have different values
            self._orders_alone[key] = orders[0]
        return self._orders_alone[key]


def _spell(value: Any) -> str:
    return str(value.values if isinstance(value, PerLane) else value)


def _is_contiguous_alone(tensor: Tensor) -> bool:
    if tensor.is_contiguous() or is_displaced(tensor):
        return True
    order = order_of(tensor)
    return is_lane_tensor(tensor) and order == sorted(order)


def _kind_alone(tensor: Tensor) -> Hashable:
    order = () if is_displaced(tensor) else tuple(order_of(tensor))
    return tensor.dtype, tensor.shape, order, tensor.device.type


def _copied(value: Any) -> Any:
    """Copy tensors, as a norm writes into its statistics; what is displaced is laid out on the way."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    if not is_lane_tensor(value):
        return value.clone()
    stack = stack_of(value).detach()
    return lanes_of(stack.clone(memory_format=torch.contiguous_format) if is_displaced(value) else stack.clone())


def _laid_out(stack: Tensor, order: list[int]) -> Tensor:
    """Return the stack with the dimensions of a lane in that order in memory, the lanes outermost."""
    there = [0, *(dim + 1 for dim in order)]
    back = sorted(range(len(there)), key=lambda place: there[place])
    return stack.permute(there).contiguous().permute(back)


def _found(names: str, homes: Iterable[Any] = (torch, Tensor, F, OPERATORS)) -> list[Any]:
    every = [getattr(home, name, None) for name in names.split() for home in homes]
    return [func for func in every if callable(func)]


REORDERING = frozenset(
    _found(
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm instance_norm", (torch, F)
    )
)
"""Layers that may give lanes another order in memory than one lane alone."""

FORMAT_READING = frozenset(
    _found(
        "cat concat concatenate stack hstack vstack dstack column_stack pad roll scaled_dot_product_attention "
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d interpolate pixel_shuffle pixel_unshuffle "
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d"
    )
)
"""Calls that choose the memory format of the answer by that of an argument, which has one dimension more with lanes."""

_KEEPS = frozenset(
    _found(
        "relu relu_ relu6 gelu silu elu leaky_relu leaky_relu_ prelu hardtanh hardswish hardsigmoid mish selu celu "
        "softplus sigmoid tanh exp log sqrt rsqrt abs square neg clamp add add_ sub sub_ mul mul_ div div_ pow lerp "
        "maximum minimum where addcmul addcdiv eq ne lt le gt ge detach clone float double half bfloat16 to "
        "__add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __neg__ __lt__ "
        "__le__ __gt__ __ge__ __eq__ __ne__ "
        "group_norm local_response_norm dropout dropout2d dropout3d cat concat "
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d interpolate sum mean"
    )
)
"""What gives one lane a contiguous answer if its arguments are contiguous, and asks no more of their order."""

_ASKS = frozenset(
    getattr(Tensor, name) if callable(getattr(Tensor, name)) else getattr(Tensor, name).__get__
    for name in (
        "shape", "dtype", "device", "ndim", "size", "dim", "numel", "nelement", "__len__", "__hash__", "requires_grad",
        "is_floating_point", "is_leaf", "grad_fn", "backward", "item", "tolist", "__bool__", "__float__", "__int__",
        "__repr__", "__format__",
    )
)  # fmt: skip
"""What the order of memory makes no difference to."""
