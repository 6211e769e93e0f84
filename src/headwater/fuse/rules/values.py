"""What Python asks of a tensor: lanes answer with PerLane numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.arrays import PerLaneArray
from headwater.fuse.mode import LaneMode, name_of
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import lanes_of, stack_of


def _item(mode: LaneMode, func: Any, tensor: Tensor) -> PerLane:
    if tensor.numel() != 1:
        raise RuntimeError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")
    return mode.per_lane(stack_of(tensor).reshape(-1))


def _bool(mode: LaneMode, func: Any, tensor: Tensor) -> Any:
    if tensor.numel() != 1:
        return NotImplemented
    return bool(_item(mode, func, tensor))


def _float(mode: LaneMode, func: Any, tensor: Tensor) -> float:
    return float(_item(mode, func, tensor))


def _int(mode: LaneMode, func: Any, tensor: Tensor) -> int:
    return int(_item(mode, func, tensor))


def _tolist(mode: LaneMode, func: Any, tensor: Tensor) -> Any:
    return _transpose(stack_of(tensor).tolist(), tensor.dim(), mode)


def _transpose(by_lane: list[Any], depth: int, mode: LaneMode) -> Any:
    if depth == 0:
        return PerLane(by_lane, mode.roster)
    return [_transpose(list(items), depth - 1, mode) for items in zip(*by_lane, strict=True)]


def _numpy(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> PerLaneArray:
    """Give each lane the array of its own part of the memory, if nothing moves that later.

    Weights lie elsewhere after a step or when lanes leave, and their arrays would not follow them.
    """
    stack = stack_of(tensor)
    if mode.swaps.shares_memory(stack):
        raise CannotFuseError(
            "the code takes weights that differ by lane out of torch (Tensor.numpy), where lanes cannot follow them; "
            "take a copy, as in weight.detach().clone().numpy()"
        )
    return PerLaneArray([func(row, *args, **kwargs) for row in stack.unbind(0)], mode.roster)


def _leave_torch(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    raise CannotFuseError(
        f"the code takes the memory of a tensor that differs by lane out of torch ({name_of(func)}), where lanes "
        "cannot follow it; take numbers out with .item() or .tolist(), and leave saving weights to trial.report"
    )


def _repr(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> str:
    if not mode.roster.shows:
        raise mode.roster.part(None, f"the code makes text of a tensor that differs by lane ({name_of(func)})")
    return f"lanes({stack_of(tensor)!r})"


def _format(mode: LaneMode, func: Any, tensor: Tensor, spec: str) -> str:
    return format(_item(mode, func, tensor), spec) if tensor.dim() == 0 else _repr(mode, func, tensor)


def _tensor(mode: LaneMode, func: Any, data: Any, **kwargs: Any) -> Tensor:
    """Build a tensor from numbers that differ by lane."""
    return lanes_of(_build(mode, data, kwargs))


def _build(mode: LaneMode, data: Any, options: dict[str, Any]) -> Tensor:
    if type(data) is PerLaneArray:
        return torch.stack([torch.tensor(value, **options) for value in data.values])
    if isinstance(data, PerLane):
        if len({type(value) for value in data.values}) > 1 and options.get("dtype") is None:
            data.one()
        return torch.tensor(data.values, **options)
    if isinstance(data, Tensor):
        return mode.stack(data).detach().to(**options, copy=True)
    if isinstance(data, list | tuple) and data:
        return torch.stack([_build(mode, item, options) for item in data], dim=1)
    return mode.widen(torch.tensor(data, **options)).clone()


def _as_tensor(mode: LaneMode, func: Any, data: Any, **kwargs: Any) -> Tensor:
    """A tensor stays what it is, with its gradient."""
    if not isinstance(data, Tensor):
        return _tensor(mode, func, data, **kwargs)
    stack = stack_of(data)
    moved = stack.to(**kwargs)
    return data if moved is stack else lanes_of(moved)


def _new_tensor(mode: LaneMode, func: Any, tensor: Tensor, data: Any, **kwargs: Any) -> Tensor:
    return _tensor(mode, func, data, **{"dtype": tensor.dtype, "device": tensor.device, **kwargs})


RULES: dict[Any, Any] = {
    Tensor.item: _item,
    Tensor.__bool__: _bool,
    Tensor.__float__: _float,
    Tensor.__int__: _int,
    Tensor.__index__: _int,
    Tensor.numpy: _numpy,
    Tensor.tolist: _tolist,
    Tensor.__repr__: _repr,
    Tensor.__format__: _format,
    torch.tensor: _tensor,
    torch.as_tensor: _as_tensor,
    torch.asarray: _as_tensor,
    Tensor.new_tensor: _new_tensor,
    **dict.fromkeys(
        [
            Tensor.__array__, Tensor.__dlpack__, Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage,
            Tensor.share_memory_,
        ],
        _leave_torch,
    ),
}  # fmt: skip
