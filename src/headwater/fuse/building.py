"""Parts of torch that are built with numbers which differ by lane, and would ask for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwater.fuse.apart import per_lanes, touches
from headwater.fuse.arrays import PerLaneArray
from headwater.fuse.lifting import Function
from headwater.fuse.per_lane import PerLane


def build_recurrent(kind: Function, *args: Any, **kwargs: Any) -> Any:
    """Build an LSTM or its like, which asks for one number where the dropout between its layers differs by lane."""
    dropout = kwargs.get("dropout")
    if type(dropout) is not PerLane or not all(type(value) is float and 0 < value <= 1 for value in dropout.values):
        return kind(*args, **kwargs)
    module = kind(*args, **{**kwargs, "dropout": dropout.values[0]})
    module.dropout = dropout
    return module


def distribute(kind: Function, *args: Any, **kwargs: Any) -> Any:
    """Build a distribution, whose numbers become tensors."""
    given = [*args, *kwargs.values()]
    if not any(type(value) is PerLane for value in given):
        return kind(*args, **kwargs)
    like = next((value for value in given if isinstance(value, Tensor)), torch.zeros(()))

    def convert(value: Any) -> Any:
        is_number = type(value) is PerLane and not any(isinstance(each, bool) for each in value.values)
        return torch.tensor(value, dtype=like.dtype, device=like.device) if is_number else value

    return kind(*map(convert, args), **{key: convert(value) for key, value in kwargs.items()})


def from_numpy(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Make a tensor of an array; one that differs by lane is copied."""
    if len(args) == 1 and type(args[0]) is PerLaneArray:
        return torch.tensor(args[0])
    return function(*args, **kwargs)


def build_tensor(kind: Function, *args: Any, **kwargs: Any) -> Any:
    """Build a tensor by its class, as `torch.FloatTensor([loss, 1.0])`."""
    if len(args) == 1 and not kwargs and isinstance(args[0], list | tuple) and touches(args):
        is_whole = not TENSOR_KINDS[kind].is_floating_point
        if not is_whole or all(type(value) is int for each in per_lanes(args) for value in each.values):
            return torch.tensor(args[0], dtype=TENSOR_KINDS[kind])
    return kind(*args, **kwargs)


TENSOR_KINDS: Mapping[Any, torch.dtype] = {
    torch.Tensor: torch.get_default_dtype(), torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64,
    torch.LongTensor: torch.int64,
}  # fmt: skip
"""Classes of tensors, with the type of their numbers."""
RECURRENT = frozenset({nn.RNN, nn.LSTM, nn.GRU})
