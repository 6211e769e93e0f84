"""Calls that need no level: what the lane tensor itself can tell, and plain changes of shape on the stack."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.mode import LaneMode, name_of
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import OPERATORS, is_lane_tensor, lanes_of, stack_of, swap


def _ask(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The lane tensor answers for one lane by itself."""
    return func(*args, **kwargs)


def _ask_one(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Any lane answers for all."""
    return func(stack_of(tensor)[0], *args, **kwargs)


def _resize(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Refuse what gives a tensor another extent in its memory, where the next lane lies."""
    raise CannotFuseError(f"{name_of(func)} would read the memory of other lanes; make a new tensor of the other shape")


def _view(mode: LaneMode, func: Any, tensor: Tensor, *shape: Any, **kwargs: Any) -> Any:
    sizes = shape[0] if shape and isinstance(shape[0], tuple | list) else shape
    if kwargs or not all(type(size) is int for size in sizes):
        return NotImplemented
    stack = stack_of(tensor)
    try:
        return lanes_of(func(stack, (stack.shape[0], *sizes)))
    except RuntimeError:
        if stack.is_contiguous():
            raise
    return _view_of_copy(func, tensor, stack.contiguous(), sizes)


def _view_of_copy(func: Any, tensor: Tensor, stack: Tensor, sizes: Any) -> Tensor:
    """The lanes lie in one another: lay them side by side, for the tensor too, so that it and the view share memory."""
    answer = lanes_of(func(stack, (stack.shape[0], *sizes)))
    swap(tensor, lanes_of(stack))
    return answer


def _transpose(mode: LaneMode, func: Any, tensor: Tensor, dim0: int, dim1: int) -> Any:
    rank = tensor.dim()
    if rank == 0:
        return NotImplemented
    return lanes_of(stack_of(tensor).transpose(_after_lanes(dim0, rank), _after_lanes(dim1, rank)))


def _permute(mode: LaneMode, func: Any, tensor: Tensor, *dims: Any, **kwargs: Any) -> Any:
    order = dims[0] if dims and isinstance(dims[0], tuple | list) else dims
    rank = tensor.dim()
    if kwargs or len(order) != rank:
        return NotImplemented
    return lanes_of(stack_of(tensor).permute(0, *(_after_lanes(dim, rank) for dim in order)))


def _flatten(mode: LaneMode, func: Any, tensor: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = tensor.dim()
    if rank == 0:
        return NotImplemented
    return lanes_of(stack_of(tensor).flatten(_after_lanes(start_dim, rank), _after_lanes(end_dim, rank)))


def _along(mode: LaneMode, func: Any, input: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A softmax or its kin along one dimension."""
    rank = input.dim()
    if type(dim) is not int or not is_lane_tensor(input) or rank == 0:
        return NotImplemented
    return lanes_of(func(stack_of(input), _after_lanes(dim, rank), *args, **kwargs))


def _after_lanes(dim: int, rank: int) -> int:
    """Return where a lane's dimension lies in the stack."""
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank + 1


def _to(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Another type, device or layout; a layout is one of each lane's own."""
    if not is_lane_tensor(tensor) or any(isinstance(arg, Tensor | PerLane) for arg in (*args, *kwargs.values())):
        return NotImplemented
    stack = stack_of(tensor)
    layout = kwargs.get("memory_format", torch.preserve_format)
    if layout in (torch.channels_last, torch.channels_last_3d):
        moved = func(stack.flatten(0, 1), *args, **kwargs).unflatten(0, stack.shape[:2])
    else:
        moved = func(stack, *args, **kwargs)
    return tensor if moved is stack else lanes_of(moved)


def _fold(mode: LaneMode, func: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Pooling and its kin treat every image alone: the lanes are so many more images."""
    if not is_lane_tensor(input) or input.dim() != _POOLS[func] + 2:
        return NotImplemented
    stack = stack_of(input)
    answer = func(stack.flatten(0, 1), *args, **kwargs)
    parts = answer if isinstance(answer, tuple) else (answer,)
    unfolded = tuple(lanes_of(part.unflatten(0, stack.shape[:2])) for part in parts)
    return unfolded if isinstance(answer, tuple) else unfolded[0]


_ASKED = (
    "shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_cpu", "is_mps", "is_sparse", "is_quantized",
    "is_meta", "is_nested", "is_complex", "is_floating_point", "is_signed", "size", "dim", "ndimension", "numel",
    "nelement", "__len__", "__hash__", "element_size", "itemsize", "get_device", "is_mkldnn", "is_xpu", "is_inference",
    "is_sparse_csr",
)  # fmt: skip

_POOLS = {
    getattr(home, f"{name}{spatial}d{suffix}"): spatial
    for home in (F, torch, OPERATORS)
    for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool")
    for spatial in (1, 2, 3)
    for suffix in ("", "_with_indices")
    if hasattr(home, f"{name}{spatial}d{suffix}")
}

RULES: dict[Any, Any] = {
    **dict.fromkeys(_POOLS, _fold),
    **{
        getattr(attribute, "__get__", attribute) if not callable(attribute) else attribute: _ask
        for attribute in (getattr(Tensor, name) for name in _ASKED)
    },
    torch.is_floating_point: _ask,
    torch.is_complex: _ask,
    torch.numel: _ask,
    **dict.fromkeys([Tensor.is_contiguous, Tensor.stride, Tensor.storage_offset, Tensor.is_shared], _ask_one),
    **dict.fromkeys(
        [Tensor.resize_, Tensor.resize_as_, torch.resize_as_, Tensor.as_strided_, torch.as_strided_], _resize
    ),
    **dict.fromkeys([Tensor.view, Tensor.reshape], _view),
    **dict.fromkeys([Tensor.transpose, torch.transpose], _transpose),
    **dict.fromkeys([Tensor.permute, torch.permute], _permute),
    **dict.fromkeys([Tensor.flatten, torch.flatten], _flatten),
    **dict.fromkeys([Tensor.to, Tensor.contiguous, Tensor.clone, torch.clone, Tensor.cpu, Tensor.cuda], _to),
    **dict.fromkeys(
        [Tensor.softmax, torch.softmax, F.softmax, Tensor.log_softmax, torch.log_softmax, F.log_softmax], _along
    ),
}
