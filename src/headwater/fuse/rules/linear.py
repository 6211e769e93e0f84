"""Matrix products. Shapes: L = lanes, N = examples, I = inputs, O = outputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode
from headwater.fuse.strategies import rehearse
from headwater.torch_private import DisableTorchFunction, StackFunction, is_lane_tensor, lanes_of, stack_of


def _linear(mode: LaneMode, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not _is_lane(weight, 2) or not (bias is None or _is_lane(bias, 1)) or not _may_feed(input, weight):
        return NotImplemented
    weight_LOI = stack_of(weight)
    bias_LO = None if bias is None else stack_of(bias)
    if torch.is_autocast_enabled(weight_LOI.device.type):
        return _affine_in_ops(mode.stack(input), weight_LOI.transpose(1, 2), bias_LO)
    if is_lane_tensor(input):
        return _affine(stack_of(input), weight_LOI, bias_LO)
    return _shared_affine(mode, input, weight_LOI, bias_LO)


def _addmm(mode: LaneMode, func: Any, input: Tensor, mat1: Tensor, mat2: Tensor, **kwargs: Any) -> Any:
    """The `Conv1D` of GPT-2: bias + x @ weight, with the weight stored inputs first."""
    if kwargs or not _is_lane(mat2, 2) or not _is_lane(input, 1) or not _may_feed(mat1, mat2):
        return NotImplemented
    return _affine_in_ops(mode.stack(mat1), stack_of(mat2), stack_of(input))


def _affine(stack: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
    x_LNI = stack if stack.dim() == 3 else stack.reshape(stack.shape[0], -1, stack.shape[-1])
    y_LNO: Tensor = _Affine.apply(x_LNI, weight_LOI, bias_LO)
    return lanes_of(y_LNO if stack.dim() == 3 else y_LNO.view(*stack.shape[:-1], weight_LOI.shape[1]))


def _affine_in_ops(stack: Tensor, weight_LIO: Tensor, bias_LO: Tensor | None) -> Tensor:
    x_LNI = stack.reshape(stack.shape[0], -1, stack.shape[-1])
    y_LNO = torch.bmm(x_LNI, weight_LIO) if bias_LO is None else torch.baddbmm(bias_LO.unsqueeze(1), x_LNI, weight_LIO)
    return lanes_of(y_LNO.view(*stack.shape[:-1], weight_LIO.shape[2]))


class _Affine(StackFunction):
    """Lane l's matrix on lane l's examples; the gradient of the weight comes in the layout of the weight."""

    @staticmethod
    def forward(ctx: Any, x_LNI: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_LNI, weight_LOI)
        return _times(x_LNI, weight_LOI, bias_LO)

    @staticmethod
    def backward(ctx: Any, grad_LNO: Tensor) -> Any:
        x_LNI, weight_LOI = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        with DisableTorchFunction():
            return (
                torch.bmm(grad_LNO, weight_LOI) if needs_x else None,
                torch.bmm(grad_LNO.transpose(1, 2), x_LNI) if needs_weight else None,
                grad_LNO.sum(1) if needs_bias else None,
            )


def _times(x_LNI: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
    if bias_LO is None:
        return torch.bmm(x_LNI, weight_LOI.transpose(1, 2))
    return torch.baddbmm(bias_LO.unsqueeze(1), x_LNI, weight_LOI.transpose(1, 2))


def _shared_affine(mode: LaneMode, x: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
    """All lanes read the same examples: one matrix product with the lanes' outputs side by side, if that is faster."""
    x_NI = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    learns = weight_LOI.requires_grad and torch.is_grad_enabled()
    key = ("linear", *weight_LOI.shape, weight_LOI.dtype, bias_LO is None, learns)
    ways = {name: rehearse(way, (x_NI, weight_LOI, bias_LO)) for name, way in _WAYS.items()}
    y_LNO = _WAYS[mode.strategies.choose(key, ways, size=x_NI.shape[0])](x_NI, weight_LOI, bias_LO)
    return lanes_of(y_LNO if x.dim() == 2 else y_LNO.unflatten(1, x.shape[:-1]) if x.dim() > 2 else y_LNO.squeeze(1))


def _wide(x_NI: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
    wide: Tensor = _SharedAffine.apply(x_NI, weight_LOI, bias_LO)
    # Seen as lanes only out here: what a function returns must own its memory for a user to change it in place.
    return wide.view(-1, *weight_LOI.shape[:2]).movedim(1, 0)


def _batched(x_NI: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
    y_LNO: Tensor = _Affine.apply(x_NI.expand(weight_LOI.shape[0], -1, -1), weight_LOI, bias_LO)
    return y_LNO


class _SharedAffine(StackFunction):
    """Every lane's matrix on the same examples, as one product."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_LOI: Tensor, bias_LO: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI)
        ctx.num_lanes = weight_LOI.shape[0]
        wide: Tensor = F.linear(x_NI, weight_LOI.flatten(0, 1), None if bias_LO is None else bias_LO.flatten())
        return wide

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x_NI,) = ctx.saved_tensors
        _, needs_weight, needs_bias = ctx.needs_input_grad
        with DisableTorchFunction():
            return (
                None,
                (grad.t() @ x_NI).view(ctx.num_lanes, -1, x_NI.shape[1]) if needs_weight else None,
                grad.sum(0).view(ctx.num_lanes, -1) if needs_bias else None,
            )


def _is_lane(tensor: Any, rank: int) -> bool:
    return isinstance(tensor, Tensor) and is_lane_tensor(tensor) and tensor.dim() == rank


def _may_feed(x: Tensor, weight: Tensor) -> bool:
    alike = x.dtype == weight.dtype or torch.is_autocast_enabled(weight.device.type)
    return alike and x.dim() > 0 and x.numel() > 0 and weight.numel() > 0


_WAYS = {"wide": _wide, "batched": _batched}

RULES: dict[Any, Any] = {
    F.linear: _linear,
    torch.addmm: _addmm,
}
