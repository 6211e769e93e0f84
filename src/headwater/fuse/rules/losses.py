"""Losses. Torch's batching of `nll_loss` is a slow loop; here the lanes are so many more examples.

Shapes: L = lanes, N = examples (with any positions), C = classes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import is_lane_tensor, lanes_of, reduction_of, stack_of

FEW_CLASSES = 16
"""Of fewer than this, torch computes the softmax one example after the other on a CPU, and several times as fast where
the examples are last."""


def _cross_entropy(
    mode: LaneMode, func: Any, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0.0,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None:
        reduction = reduction_of(size_average, reduce)
    by_class = not target.is_floating_point() and weight is None and _fits(input, target)
    if not by_class or reduction not in _REDUCTIONS or not _may_smooth(input, label_smoothing):
        return _apart(mode, func, input, target, weight, ignore_index, reduction, label_smoothing)
    logits_LNC, target_LN = _by_example(mode, input, target)
    if isinstance(label_smoothing, PerLane):
        loss = _smoothed(mode, logits_LNC, target_LN, ignore_index, label_smoothing)
    else:
        options = {"ignore_index": ignore_index, "reduction": "none", "label_smoothing": label_smoothing}
        if logits_LNC.shape[-1] < FEW_CLASSES and logits_LNC.device.type == "cpu":
            loss = F.cross_entropy(logits_LNC.transpose(1, 2).contiguous(), target_LN, **options)
        else:
            loss = F.cross_entropy(logits_LNC.flatten(0, 1), target_LN.flatten(), **options).view(target_LN.shape)
    return _reduced(loss, target_LN, target, ignore_index, reduction)


def _apart(
    mode: LaneMode, func: Any, input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int,
    reduction: str, label_smoothing: Any,
) -> Tensor:  # fmt: skip
    """Class weights, soft targets: torch's own batching, or lane by lane where the smoothing differs."""
    run = mode.run_looped if isinstance(label_smoothing, PerLane) else mode.run_batched
    options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
    answer: Tensor = run(func, (input, target, weight), options)
    return answer


def _nll_loss(
    mode: LaneMode, func: Any, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    unusual = size_average is not None or reduce is not None or reduction not in _REDUCTIONS
    if unusual or weight is not None or not _fits(input, target):
        return NotImplemented
    logits_LNC, target_LN = _by_example(mode, input, target)
    flat = F.nll_loss(logits_LNC.flatten(0, 1), target_LN.flatten(), ignore_index=ignore_index, reduction="none")
    return _reduced(flat.view(target_LN.shape), target_LN, target, ignore_index, reduction)


def _fits(input: Tensor, target: Tensor) -> bool:
    """Tell whether the targets have the shape of the logits without their classes."""
    return is_lane_tensor(input) and target.shape == (*input.shape[:1], *input.shape[2:])[input.dim() == 1 :]


def _may_smooth(input: Tensor, label_smoothing: Any) -> bool:
    """Tell whether smoothing that differs by lane can be spelt out; in reduced precision torch has a way of its own."""
    if not isinstance(label_smoothing, PerLane):
        return True
    exact = input.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(input.device.type)
    return exact and all(0 <= share <= 1 for share in label_smoothing.values)


def _by_example(mode: LaneMode, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits with classes last and the targets, both with all positions in one dimension."""
    stack = stack_of(input)
    stack = stack.unsqueeze(1) if input.dim() == 1 else stack.movedim(2, -1)
    logits_LNC = stack.reshape(stack.shape[0], -1, stack.shape[-1])
    return logits_LNC, mode.stack(target).reshape(stack.shape[0], -1)


def _smoothed(mode: LaneMode, logits_LNC: Tensor, target_LN: Tensor, ignore_index: int, smoothing: PerLane) -> Tensor:
    log_p = F.log_softmax(logits_LNC, -1)
    kept = target_LN != ignore_index
    nll = -log_p.gather(-1, target_LN.where(kept, 0).unsqueeze(-1)).squeeze(-1)
    share = mode.number(smoothing, nll)
    loss: Tensor = (1 - share) * nll - share / log_p.shape[-1] * log_p.sum(-1)
    return loss.where(kept, 0)


def _reduced(loss_LN: Tensor, target_LN: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    if reduction == "none":
        return lanes_of(loss_LN.view(loss_LN.shape[0], *target.shape))
    total = loss_LN.sum(1)
    if reduction == "sum":
        return lanes_of(total)
    return lanes_of(total / (target_LN != ignore_index).sum(1))


def _huber_loss(mode: LaneMode, func: Any, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Torch's batching goes wrong where only the target has lanes."""
    return NotImplemented if is_lane_tensor(input) else mode.run_looped(func, (input, target, *args), kwargs)


_REDUCTIONS = ("mean", "sum", "none")

RULES: dict[Any, Any] = {F.cross_entropy: _cross_entropy, F.nll_loss: _nll_loss, F.huber_loss: _huber_loss}
