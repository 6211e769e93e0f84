"""Sums over rows inside a model that computes a part of a batch: BatchNorm, and losses that a model returns.

Inside a divided call, the gradient of a value that is the same for all parts is itself divided: it is the sum of what
the parts have. So the derivative of a sum over all parts is the sum of the parts' derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from headwater.train.ranks import RankGroup

_ELEMENTWISE = frozenset(
    {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
     F.soft_margin_loss}
)  # fmt: skip


class PartReductions(TorchFunctionMode):
    """Answers BatchNorm and the usual losses for the rows of all ranks."""

    def __init__(self, group: RankGroup, *, sums_losses: bool = True, uses_running: bool = False) -> None:
        """Leave losses alone, and let BatchNorm use its running statistics, where that is asked for."""
        super().__init__()
        self.has_normed = False
        """Whether a BatchNorm took statistics of its batch."""
        self._group = group
        self._sums_losses = sums_losses
        self._uses_running = uses_running

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._norm(*args, **kwargs)
        if self._sums_losses and func is F.cross_entropy:
            return self._cross_entropy(*args, **kwargs)
        if self._sums_losses and func in _ELEMENTWISE:
            return self._sum_elements(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _norm(  # noqa: PLR0913 - the signature of torch
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        self.has_normed = self.has_normed or training
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
        if self._uses_running:
            mean = running_mean if running_mean is not None else x.new_zeros(x.shape[1])
            variance = running_var if running_var is not None else x.new_ones(x.shape[1])
            return F.batch_norm(x, mean, variance, weight, bias, False, momentum, eps)
        mean, variance, count = self._take_statistics(x.detach())
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
        answer: Tensor = _Norm.apply(x, mean, variance, weight, bias, eps, count, self._group)  # type: ignore[no-untyped-call]
        return answer

    def _take_statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance of each channel, and how many values it has, over all ranks."""
        dims = [dim for dim in range(x.dim()) if dim != 1]
        kind = torch.promote_types(x.dtype, torch.float32)
        own_variance, own_mean = torch.var_mean(x.to(kind), dims, correction=0)
        own_count = own_mean.new_full((1,), x.numel() // x.shape[1], dtype=torch.float64)
        parts = torch.stack(self._group.gather(torch.cat([own_mean.double(), own_variance.double(), own_count])))
        means, variances = parts[:, :-1].chunk(2, dim=1)
        count = parts[:, -1].sum()  # never read in Python, for that would be taken for the model's doing
        shares = parts[:, -1:] / count
        mean = (shares * means).sum(0)
        variance = (shares * (variances + (means - mean).square())).sum(0)
        return mean.to(kind), variance.to(kind), count

    def _cross_entropy(  # noqa: PLR0913 - the signature of torch
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        if reduction == "none" or size_average is not None or reduce is not None:
            return F.cross_entropy(x, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        own = F.cross_entropy(
            x, target, weight, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
        )
        if reduction == "sum":
            return sum_parts(own, self._group)
        if target.is_floating_point():
            count = own.new_tensor(x.numel() / x.shape[1 if x.dim() > 1 else 0])
        elif weight is None:
            count = (target != ignore_index).sum().to(own.dtype)
        else:
            count = weight[target.clamp(min=0)].where(target != ignore_index, 0).sum()
        return sum_parts(own, self._group) / self._group.sum([count])[0]

    def _sum_elements(self, func: Any, *args: Any, reduction: str = "mean", **kwargs: Any) -> Tensor:
        if reduction == "none" or len(args) > 2 or "reduce" in kwargs or "size_average" in kwargs:
            answer: Tensor = func(*args, reduction=reduction, **kwargs)
            return answer
        losses = func(*args, reduction="none", **kwargs)
        total = sum_parts(losses.sum(), self._group)
        if reduction == "sum":
            return total
        return total / self._group.sum([losses.new_tensor(losses.numel())])[0]


def sum_parts(own: Tensor, group: RankGroup) -> Tensor:
    """Return the sum over all ranks, through which gradients flow."""
    total: Tensor = _Sum.apply(own, group)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    """A sum over all ranks."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: RankGroup) -> Tensor:
        ctx.group = group
        return group.sum([own.clone()])[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.sum([gradient])[0], None


class _Norm(torch.autograd.Function):
    """BatchNorm by given statistics, which were taken of this input and those of other ranks."""

    @staticmethod
    def forward(  # noqa: PLR0913 - all that a norm depends on
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        count: Tensor,
        group: RankGroup,
    ) -> Tensor:
        ctx.save_for_backward(x, mean, variance, weight, count)
        ctx.eps, ctx.group = eps, group
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, mean, variance, weight, count = ctx.saved_tensors
        shape = [1, -1, *(1,) * (x.dim() - 2)]
        dims = [dim for dim in range(x.dim()) if dim != 1]
        scale = torch.rsqrt(variance + ctx.eps)
        normed = (x - mean.view(shape)) * scale.view(shape)
        own_bias, own_weight = gradient.sum(dims), (gradient * normed).sum(dims)
        all_bias, all_weight = ctx.group.sum([own_bias, own_weight])
        factor = scale if weight is None else scale * weight
        centred = gradient - (all_bias.view(shape) + normed * all_weight.view(shape)) / count
        by_weight = own_weight.to(weight.dtype) if ctx.needs_input_grad[3] else None
        by_bias = own_bias.to(mean.dtype if weight is None else weight.dtype) if ctx.needs_input_grad[4] else None
        return (centred * factor.view(shape)).to(x.dtype), None, None, by_weight, by_bias, None, None, None
