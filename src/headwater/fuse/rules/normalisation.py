"""Batch normalisation, whose statistics are each lane's own: lane by lane or all at once, whichever is faster.

Shapes: L = lanes, N = examples, C = channels, S = positions in an example, M = N times S. Inside, channels come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.devices import send
from headwater.fuse.mode import LaneMode
from headwater.fuse.per_lane import PerLane
from headwater.fuse.rules.convolution import LAYOUTS
from headwater.fuse.strategies import Strategies
from headwater.torch_private import apply_plainly, is_lane_tensor, lanes_of, stack_of, verify_batch_size

Running: TypeAlias = tuple[Tensor, Tensor] | None
"""The running mean and variance, each of shape LC, that a pass moves on in place."""


def _batch_norm(
    mode: LaneMode, func: Any, input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:  # fmt: skip
    own = [tensor for tensor in (running_mean, running_var, weight, bias) if tensor is not None]
    if isinstance(eps, PerLane) or not all(is_lane_tensor(tensor) and tensor.dtype == input.dtype for tensor in own):
        return NotImplemented
    if input.dim() > 2 and mode.strategies.race(mode, LAYOUTS) != LAYOUTS[0] and not isinstance(momentum, PerLane):
        return NotImplemented
    if input.dtype not in (torch.float32, torch.float64) or (running_mean is None) != (running_var is None):
        return NotImplemented
    running = None if running_mean is None or running_var is None else (stack_of(running_mean), stack_of(running_var))
    affine = [None if tensor is None else stack_of(tensor) for tensor in (weight, bias)]
    x_LNCS = mode.stack(input)
    if not training:
        return lanes_of(_normalise_by(x_LNCS, running, affine, eps))
    verify_batch_size(input.size())
    momenta = momentum.values if isinstance(momentum, PerLane) else [momentum] * len(x_LNCS)
    x_LNSC = x_LNCS.movedim(2, -1)
    y_LMC: Tensor = _BatchNorm.apply(
        x_LNSC.flatten(1, -2).contiguous(), *affine, running, (momenta, eps), mode.strategies
    )
    return lanes_of(y_LMC.view(x_LNSC.shape).movedim(-1, 2))


def _normalise_by(x_LNCS: Tensor, running: Running, affine: Sequence[Tensor | None], eps: float) -> Tensor:
    """Normalise as in evaluation, where each channel is but scaled and shifted."""
    if running is None:
        raise ValueError("Expected running_mean and running_var to be defined when training=False")
    mean_LC, var_LC = running
    weight_LC, bias_LC = affine
    scale_LC = (var_LC + eps).rsqrt() if weight_LC is None else weight_LC * (var_LC + eps).rsqrt()
    shift_LC = -mean_LC * scale_LC if bias_LC is None else bias_LC - mean_LC * scale_LC
    shape = (len(x_LNCS), 1, -1, *(1,) * (x_LNCS.dim() - 3))
    return torch.addcmul(shift_LC.view(shape), x_LNCS, scale_LC.view(shape))


class _BatchNorm(torch.autograd.Function):
    """Normalise the rows of each lane by their own mean and variance."""

    apply: Any = classmethod(apply_plainly)

    @staticmethod
    def forward(
        ctx: Any, x_LMC: Tensor, weight_LC: Tensor | None, bias_LC: Tensor | None, running: Running,
        settings: tuple[Sequence[float], float], strategies: Strategies,
    ) -> Tensor:  # fmt: skip
        operands = (x_LMC, weight_LC, bias_LC)
        rehearsals = {name: partial(_rehearse, way, operands, running, settings) for name, way in _FORWARD.items()}
        way = strategies.choose(("batch norm", *_kind(x_LMC)), rehearsals, size=x_LMC.shape[1])
        y_LMC: Tensor
        y_LMC, mean_LC, invstd_LC = _FORWARD[way](*operands, running, *settings)
        ctx.strategies, ctx.eps = strategies, settings[1]
        ctx.save_for_backward(x_LMC, weight_LC, mean_LC, invstd_LC)
        return y_LMC

    @staticmethod
    def backward(ctx: Any, grad_LMC: Tensor) -> Any:
        x_LMC, weight_LC, mean_LC, invstd_LC = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradients = _all_back(grad_LMC, x_LMC, weight_LC, *_statistics(x_LMC, ctx.eps))
        else:
            operands = (grad_LMC.contiguous(), x_LMC, weight_LC, mean_LC, invstd_LC)
            ways = {name: partial(way, *operands) for name, way in _BACKWARD.items()}
            key = ("gradient of batch norm", *_kind(x_LMC))
            gradients = ways[ctx.strategies.choose(key, ways, size=x_LMC.shape[1])]()
        needed = [item if needs else None for item, needs in zip(gradients, ctx.needs_input_grad, strict=False)]
        return *needed, None, None, None


def _rehearse(way: Any, operands: Sequence[Tensor | None], running: Running, settings: Sequence[Any]) -> None:
    """Run the way for the stopwatch, which must not move the running statistics."""
    way(*operands, None if running is None else (running[0].clone(), running[1].clone()), *settings)


def _kind(x_LMC: Tensor) -> tuple[Any, ...]:
    return (len(x_LMC) - 1).bit_length(), x_LMC.shape[2], x_LMC.dtype, x_LMC.device.type


def _loop(
    x_LMC: Tensor,
    weight_LC: Tensor | None,
    bias_LC: Tensor | None,
    running: Running,
    momenta: Sequence[float],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    y_LMC = torch.empty_like(x_LMC)
    mean_LC, invstd_LC = x_LMC.new_empty(2, len(x_LMC), x_LMC.shape[2])
    outputs = zip(_as_images(y_LMC), mean_LC.unbind(), invstd_LC.unbind(), strict=True)
    own = zip(*(_by_lane(item, len(x_LMC)) for item in (weight_LC, bias_LC, *(running or (None, None)))), strict=True)
    for image, tensors, momentum, (y, mean_C, invstd_C) in zip(_as_images(x_LMC), own, momenta, outputs, strict=True):
        torch.ops.aten.native_batch_norm.out(
            image, *tensors, True, momentum, eps, out=y, save_mean=mean_C, save_invstd=invstd_C
        )
    return y_LMC, mean_LC, invstd_LC


def _loop_back(
    grad_LMC: Tensor, x_LMC: Tensor, weight_LC: Tensor | None, mean_LC: Tensor, invstd_LC: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = torch.empty_like(x_LMC), torch.empty_like(mean_LC), torch.empty_like(mean_LC)
    rooms = zip(_as_images(gradients[0]), gradients[1].unbind(), gradients[2].unbind(), strict=True)
    images = zip(_as_images(grad_LMC), _as_images(x_LMC), strict=True)
    own = zip(*(_by_lane(item, len(x_LMC)) for item in (weight_LC, mean_LC, invstd_LC)), strict=True)
    for (grad, x), (weight_C, mean_C, invstd_C), parts in zip(images, own, rooms, strict=True):
        answers = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight_C, None, None, mean_C, invstd_C, True, 0.0, [True, True, True]
        )
        for part, answer in zip(parts, answers, strict=True):
            part.copy_(answer)
    return gradients


def _as_images(rows_LMC: Tensor) -> Sequence[Tensor]:
    """Show each lane's rows as one image whose channels come last in memory, which torch normalises fastest."""
    return rows_LMC.mT[:, None, :, :, None].unbind()


def _by_lane(stack: Tensor | None, num_lanes: int) -> Sequence[Tensor | None]:
    return [None] * num_lanes if stack is None else stack.unbind()


def _all(
    x_LMC: Tensor,
    weight_LC: Tensor | None,
    bias_LC: Tensor | None,
    running: Running,
    momenta: Sequence[float],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = x_LMC.shape[1]
    mean_LC = x_LMC.mean(1)
    y_LMC = x_LMC - mean_LC.unsqueeze(1)
    var_LC = y_LMC.square().mean(1)
    if running is not None:
        momentum: Any = momenta[0]  # a kernel takes a number as it is, so that nothing is copied to the device
        if len(set(momenta)) > 1:
            momentum = send(torch.tensor(momenta, dtype=x_LMC.dtype), x_LMC.device).unsqueeze(1)
        running[0].lerp_(mean_LC, momentum)
        running[1].lerp_(var_LC * (num_rows / (num_rows - 1)), momentum)
    invstd_LC = (var_LC + eps).rsqrt()
    scale_LC = invstd_LC if weight_LC is None else invstd_LC * weight_LC
    if bias_LC is None:
        return y_LMC.mul_(scale_LC.unsqueeze(1)), mean_LC, invstd_LC
    return torch.addcmul(bias_LC.unsqueeze(1), y_LMC, scale_LC.unsqueeze(1), out=y_LMC), mean_LC, invstd_LC


def _all_back(
    grad_LMC: Tensor, x_LMC: Tensor, weight_LC: Tensor | None, mean_LC: Tensor, invstd_LC: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = x_LMC.shape[1]
    centred_LMC = x_LMC - mean_LC.unsqueeze(1)
    d_bias_LC = grad_LMC.sum(1)
    d_scale_LC = (grad_LMC * centred_LMC).sum(1)
    scale_LC = invstd_LC if weight_LC is None else invstd_LC * weight_LC
    towards_LC = -scale_LC * invstd_LC.square() * d_scale_LC / num_rows
    d_x_LMC = torch.addcmul((-scale_LC * d_bias_LC / num_rows).unsqueeze(1), grad_LMC, scale_LC.unsqueeze(1))
    return torch.addcmul(d_x_LMC, centred_LMC, towards_LC.unsqueeze(1)), d_scale_LC * invstd_LC, d_bias_LC


def _statistics(x_LMC: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    mean_LC = x_LMC.mean(1)
    return mean_LC, ((x_LMC - mean_LC.unsqueeze(1)).square().mean(1) + eps).rsqrt()


_FORWARD: dict[str, Any] = {"looped": _loop, "batched": _all}
_BACKWARD: dict[str, Any] = {"looped": _loop_back, "batched": _all_back}

RULES: dict[Any, Any] = {F.batch_norm: _batch_norm}
