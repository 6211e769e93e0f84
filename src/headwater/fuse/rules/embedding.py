"""Look-ups. Shapes: L = lanes, V = vocabulary, D = features."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.mode import LaneMode
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of


def _embedding(
    mode: LaneMode, func: Any, input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: Any = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Put the lanes' tables one below the other and let lane l look from row l * V on."""
    if sparse:
        raise CannotFuseError("an embedding with sparse=True has sparse gradients, which lanes cannot share; drop it")
    if max_norm is not None:
        _renormalise(mode, input, weight, max_norm, norm_type)
    if not is_lane_tensor(weight) or not _within(input, weight.shape[0]):
        answer: Tensor = mode.run_looped(func, (input, weight, padding_idx, None, norm_type, scale_grad_by_freq))
        return answer
    weight_LVD = stack_of(weight)
    num_lanes, num_rows, num_features = weight_LVD.shape
    offset = torch.arange(0, num_lanes * num_rows, num_rows, device=input.device)
    rows = mode.stack(input) + offset.view(-1, *(1,) * input.dim())
    table = weight_LVD.reshape(num_lanes * num_rows, num_features)
    found = F.embedding(rows, table, scale_grad_by_freq=scale_grad_by_freq)
    if padding_idx is not None:
        is_padding = (mode.stack(input) == padding_idx % num_rows).unsqueeze(-1)
        found = torch.where(is_padding, found.detach(), found)
    return lanes_of(found)


def _within(input: Tensor, num_rows: int) -> bool:
    """Tell whether every look-up meets the lane's own rows; a graphics card finds out by itself, and stops."""
    indices = stack_of(input) if is_lane_tensor(input) else input
    if indices.numel() == 0 or indices.device.type != "cpu":
        return True
    least, most = torch.aminmax(indices)
    return int(least) >= 0 and int(most) < num_rows


def _renormalise(mode: LaneMode, input: Tensor, weight: Tensor, max_norm: Any, norm_type: float) -> None:
    """Shorten the rows that are looked up, in place, as torch does before it looks."""
    if not is_lane_tensor(weight):
        raise CannotFuseError("an embedding with max_norm that lanes share is not part of a prepared model")
    limits = max_norm.values if isinstance(max_norm, PerLane) else [max_norm] * mode.num_lanes
    with torch.no_grad():
        for table, indices, limit in zip(stack_of(weight).detach(), mode.stack(input), limits, strict=True):
            torch.embedding_renorm_(table, indices.contiguous(), limit, norm_type)


def _embedding_bag(
    lane_mode: LaneMode, func: Any, input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: Any = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, *rest: Any,
    **options: Any,
) -> Any:  # fmt: skip
    if sparse:
        raise CannotFuseError(
            "an EmbeddingBag with sparse=True has sparse gradients, which lanes cannot share; drop it"
        )
    if max_norm is not None:
        _renormalise(lane_mode, input, weight, max_norm, norm_type)
    args = (input, weight, offsets, None, norm_type, scale_grad_by_freq, mode, sparse, *rest)
    return lane_mode.run_looped(func, args, options)


RULES: dict[Any, Any] = {F.embedding: _embedding, F.embedding_bag: _embedding_bag}
