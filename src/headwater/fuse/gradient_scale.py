"""What `GradScaler` does with gradients, lane by lane: one lane's overflow is no other's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwater.torch_private import is_lane_tensor, stack_of


def unscale(grads: Sequence[Tensor], inverse: Tensor) -> None:
    """Multiply stacks of gradients by the inverse of the scale, one for all lanes or one per lane."""
    for grad in grads:
        wide = torch.float64 if grad.dtype == torch.float64 else torch.float32
        grad.mul_(inverse.to(wide).view(-1, *(1,) * (grad.dim() - 1)))


def find_overflows(grads: Sequence[Tensor]) -> Tensor:
    """Return for each lane 1 where one of its gradients is not finite, else 0."""
    finite = torch.stack([grad.isfinite().flatten(1).all(dim=1) for grad in grads])
    return (~finite.all(dim=0)).float()


def places_that_overflow(found: Any, num_lanes: int) -> frozenset[int]:
    """Read what `GradScaler` has found: a number for all lanes, or one per lane."""
    is_by_lane = isinstance(found, Tensor) and is_lane_tensor(found)
    numbers = stack_of(found).reshape(-1).tolist() if is_by_lane else [float(found)] * num_lanes
    return frozenset(place for place, number in enumerate(numbers) if number)


def inverse_of(scale: Tensor) -> Tensor:
    """Return the inverse of a scale as torch computes it, as numbers of the lanes or as a single one."""
    plain = stack_of(scale) if is_lane_tensor(scale) else scale
    return plain.double().reciprocal().float()
