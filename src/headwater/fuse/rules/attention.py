"""Attention: the lanes are so many more sequences. Shapes: L = lanes, N = sequences, H = heads, T, S = positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import is_lane_tensor, lanes_of


def _attend(
    mode: LaneMode, func: Any, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: Any = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if isinstance(dropout_p, PerLane) or isinstance(scale, PerLane) or dropout_p > 0:
        with mode, _lower_precision(query.device.type) as lower:
            query, key, value = lower(query), lower(key), lower(value)
            return _attend_with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if not _can_fold(query, key, value):
        answer: Tensor = mode.run_looped(func, (query, key, value, attn_mask, dropout_p), options)
        return answer
    stacks = [mode.stack(tensor) for tensor in (query, key, value)]
    mask = None if attn_mask is None else _fold_mask(mode, attn_mask, query.shape[0])
    folded = func(*(stack.flatten(0, 1) for stack in stacks), attn_mask=mask, **options)
    return lanes_of(folded.unflatten(0, (stacks[0].shape[0], -1)))


def _can_fold(*tensors: Tensor) -> bool:
    """Tell whether the lanes can be so many more sequences: then all have as many."""
    return all(tensor.dim() == 4 and tensor.shape[0] == tensors[0].shape[0] > 0 for tensor in tensors)


@contextmanager
def _lower_precision(device_type: str) -> Iterator[Callable[[Tensor], Tensor]]:
    """Do what autocast does with attention: lower the precision of its inputs, then compute in that."""
    if not torch.is_autocast_enabled(device_type):
        yield lambda tensor: tensor
        return
    dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        yield lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor


def _fold_mask(mode: LaneMode, mask: Tensor, num_sequences: int) -> Tensor:
    """Give the mask one row per lane and sequence, if it differs between them."""
    if not is_lane_tensor(mask) and (mask.dim() < 4 or mask.shape[0] == 1):
        return mask
    stack = mode.stack(mask)
    stack = stack.reshape(stack.shape[0], *(1,) * (4 - mask.dim()), *mask.shape)
    return stack.expand(-1, num_sequences, -1, -1, -1).flatten(0, 1)


def _attend_with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: Any, is_causal: bool, scale: Any,
    enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """Attention spelt out as torch does it where a fused kernel cannot drop, so that `dropout` draws its numbers."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = (query * scale**0.5) @ (key * scale**0.5).transpose(-2, -1)
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is None:
        return F.dropout(scores.softmax(-1), dropout_p, True) @ value
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    sees_none = (scores == -math.inf).all(-1, keepdim=True)
    return F.dropout(scores.softmax(-1).masked_fill(sees_none, 0.0), dropout_p, True) @ value


def _open_up(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run torch's own Python code of the function with the mode on, so that each call in it finds its rule."""
    with mode:
        return _OPENED[func](*args, **kwargs)


def _without_detour(func: Any) -> Any:
    """Copy a function of `torch.nn.functional` that would otherwise hand itself to the mode again."""
    never = {name: lambda *_: False for name in ("has_torch_function", "has_torch_function_unary")}
    copy = FunctionType(func.__code__, {**func.__globals__, **never}, func.__name__, func.__defaults__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


_OPENED = {func: _without_detour(func) for func in (F.multi_head_attention_forward,)}

RULES: dict[Any, Any] = {F.scaled_dot_product_attention: _attend, **dict.fromkeys(_OPENED, _open_up)}
