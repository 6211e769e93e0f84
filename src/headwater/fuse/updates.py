"""Update rules of torch's optimizers for all lanes at once, each hyperparameter a number or one number per lane.

They do the arithmetic of torch's single-tensor code in its order, so that a lane gets the bits it would get alone.
Where torch branches on a number (`if momentum != 0`), lanes on either side of the branch each get their own side.
Tensors without a word about their shape are flat buffers of a chunk, [lanes, numbers per lane].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import neg
from typing import Any, TypeAlias

import torch
from torch import Tensor

from headwater.fuse.factors import Factor, Lanewise, each, mask_column
from headwater.fuse.flat_state import GRAD, Chunk

Factors: TypeAlias = Mapping[str, Factor]
Flags: TypeAlias = Mapping[str, bool]
Stacks: TypeAlias = Sequence[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one class of torch's optimizers updates stacks.

    `numbers` and `flags` name its hyperparameters (`betas` goes by `beta1` and `beta2`), `derive` computes the numbers
    that follow from them alone, and `buffers` names the state that torch keeps for a lane with these settings.
    """

    numbers: tuple[str, ...]
    flags: tuple[str, ...]
    update: Callable[[Chunk, Stacks, Stacks, Factors, Flags], None]
    derive: Callable[[Mapping[str, Lanewise]], Mapping[str, Lanewise]]
    buffers: Callable[[Mapping[str, Any]], tuple[str, ...]]
    fills: Mapping[str, str] = field(default_factory=dict)
    """Buffers that do not start from zero, and the hyperparameter that they start from."""
    counts_steps: bool = True
    """Whether torch keeps `step`; if not, a lane counts as stepped once it has its buffers."""
    keeps_state_from_the_start: bool = False
    """Whether torch makes the state with the optimizer, and not at the first step."""


def update_sgd(chunk: Chunk, stacks: Stacks, grads: Stacks, factors: Factors, flags: Flags) -> None:
    """Step as `torch.optim.SGD` does."""
    momentum = factors["momentum"]
    grads = _with_decay(chunk, grads, stacks, factors["weight_decay"], flags["maximize"])
    if momentum.is_zero:
        directions = grads
    elif momentum.has_zero or not _all_stepped(chunk):
        directions = _enter_momentum(chunk, grads, factors, flags)
    else:
        buffer, buffers = chunk.flat("momentum_buffer"), chunk.views("momentum_buffer")
        buffer.mul_(momentum.column(buffer))
        _add_scaled(chunk, buffers, grads, factors["gain"])
        directions = _scaled_sum(chunk, grads, buffers, momentum) if flags["nesterov"] else buffers
    _add_scaled(chunk, stacks, directions, factors["minus_lr"])


def update_adam(chunk: Chunk, stacks: Stacks, grads: Stacks, factors: Factors, flags: Flags) -> None:
    """Step as `torch.optim.Adam` and `torch.optim.AdamW` do."""
    chunk.steps = each(_next, chunk.steps)
    decay = factors["weight_decay"]
    if flags["decoupled_weight_decay"]:
        if not decay.is_zero:
            torch._foreach_mul_(list(stacks), factors["shrink"].spread(stacks, chunk.token))
        decay = _NOTHING
    grad = chunk.gather(_with_decay(chunk, grads, stacks, decay, flags["maximize"]))
    mean, square = chunk.flat("exp_avg"), chunk.flat("exp_avg_sq")
    _lerp(mean, grad, factors["rest1"])
    _decay_square(square, grad, factors["beta2"], factors["rest2"])
    if flags["amsgrad"]:
        largest = chunk.flat("max_exp_avg_sq")
        square = torch.maximum(largest, square, out=largest)
    step_size = factors["lr"].minus_over(_bias_correction(chunk, factors["beta1"]), chunk.device)
    root = _bias_correction_root(chunk, factors["beta2"])
    denominator = square.sqrt().div_(root.column(square)).add_(factors["eps"].column(square))
    torch.mul(mean, step_size.column(mean), out=grad)
    _add_quotient(chunk, stacks, denominator)


def update_adagrad(chunk: Chunk, stacks: Stacks, grads: Stacks, factors: Factors, flags: Flags) -> None:
    """Step as `torch.optim.Adagrad` does."""
    chunk.steps = each(_next, chunk.steps)
    grad = chunk.gather(_with_decay(chunk, grads, stacks, factors["weight_decay"], flags["maximize"]))
    total = chunk.flat("sum", factors["initial_accumulator_value"])
    total.addcmul_(grad, grad)
    rate = factors["lr"].minus_over(_adagrad_divisor(chunk, factors["lr_decay"]), chunk.device)
    denominator = total.sqrt().add_(factors["eps"].column(total))
    grad.mul_(rate.column(grad))
    _add_quotient(chunk, stacks, denominator)


def update_rmsprop(chunk: Chunk, stacks: Stacks, grads: Stacks, factors: Factors, flags: Flags) -> None:
    """Step as `torch.optim.RMSprop` does."""
    chunk.steps = each(_next, chunk.steps)
    grad = chunk.gather(_with_decay(chunk, grads, stacks, factors["weight_decay"], flags["maximize"]))
    square = chunk.flat("square_avg")
    _decay_square(square, grad, factors["alpha"], factors["rest"])
    if flags["centered"]:
        mean = chunk.flat("grad_avg")
        _lerp(mean, grad, factors["rest"])
        denominator = square.addcmul(mean, mean, value=-1).sqrt_()
    else:
        denominator = square.sqrt()
    denominator.add_(factors["eps"].column(square))
    momentum = factors["momentum"]
    if momentum.is_zero:
        grad.mul_(factors["minus_lr"].column(grad))
        _add_quotient(chunk, stacks, denominator)
        return
    buffer = chunk.flat("momentum_buffer")
    if momentum.has_zero:
        _enter_rmsprop_momentum(grad, buffer, denominator, factors)
    else:
        buffer.mul_(momentum.column(buffer)).addcdiv_(grad, denominator)
    _add_scaled(
        chunk, stacks, chunk.views(GRAD if momentum.has_zero else "momentum_buffer"), factors["rate_with_momentum"]
    )


def _with_decay(chunk: Chunk, grads: Stacks, stacks: Stacks, decay: Factor, maximize: bool) -> Stacks:
    """Return the gradients of what is minimised: negated for `maximize`, with the gradient of the weight decay."""
    if maximize:
        grads = torch._foreach_neg(list(grads))
    if decay.is_zero:
        return grads
    decayed = _scaled_sum(chunk, grads, stacks, decay)
    if not decay.has_zero:
        return decayed
    # 0 * inf would be NaN: a lane without decay keeps its gradient, whatever has become of its weights.
    masks = decay.spread(stacks, chunk.token)
    triples = zip(masks, decayed, grads, strict=True)
    return [torch.where(mask != 0, with_decay, grad) for mask, with_decay, grad in triples]


def _scaled_sum(chunk: Chunk, terms: Stacks, others: Stacks, factor: Factor) -> list[Tensor]:
    """Return `terms + factor * others`."""
    if isinstance(factor.value, tuple):
        sums = torch._foreach_addcmul(list(terms), list(others), factor.spread(others, chunk.token))
    else:
        sums = torch._foreach_add(list(terms), list(others), alpha=factor.value)
    return list(sums)


def _add_scaled(chunk: Chunk, targets: Stacks, others: Stacks, factor: Factor) -> None:
    """Add `factor * others` in place."""
    if isinstance(factor.value, tuple):
        torch._foreach_addcmul_(list(targets), list(others), factor.spread(others, chunk.token))
    else:
        torch._foreach_add_(list(targets), list(others), alpha=factor.value)


def _flat_scaled_sum(term: Tensor, other: Tensor, factor: Factor) -> Tensor:
    if isinstance(factor.value, tuple):
        return term.addcmul(other, factor.column(other))
    return term.add(other, alpha=factor.value)


def _add_quotient(chunk: Chunk, stacks: Stacks, denominator: Tensor) -> None:
    """Add to the parameters what the gradient buffer now holds, divided."""
    chunk.flat(GRAD).div_(denominator)
    torch._foreach_add_(list(stacks), chunk.views(GRAD))


def _lerp(target: Tensor, end: Tensor, weight: Factor) -> None:
    column = weight.column(target)
    if isinstance(column, Tensor) and column.dtype != target.dtype:  # 16 bits: torch wants one type
        target.copy_(torch.lerp(target.to(column.dtype), end.to(column.dtype), column))
    else:
        target.lerp_(end, column)


def _decay_square(square: Tensor, grad: Tensor, kept: Factor, rest: Factor) -> None:
    """Move the average of squares: `kept * square + rest * grad * grad`."""
    square.mul_(kept.column(square))
    if isinstance(rest.value, tuple):
        square.addcmul_(grad * rest.column(grad), grad)
    else:
        square.addcmul_(grad, grad, value=rest.value)


def _enter_momentum(chunk: Chunk, grads: Stacks, factors: Factors, flags: Flags) -> list[Tensor]:
    """Return SGD's directions while some lanes have no momentum or no buffer yet; a new buffer is the gradient."""
    grad, buffer = chunk.gather(grads), chunk.flat("momentum_buffer")
    momentum = factors["momentum"]
    moves = mask_column(each(bool, momentum.value), chunk.num_lanes, chunk.device)
    has_buffer = mask_column(each(bool, chunk.steps), chunk.num_lanes, chunk.device)
    moved = buffer * momentum.column(buffer)
    moved = _flat_scaled_sum(moved, grad, factors["gain"])
    buffer.copy_(torch.where(moves, torch.where(has_buffer, moved, grad), buffer))
    direction = _flat_scaled_sum(grad, buffer, momentum) if flags["nesterov"] else buffer
    grad.copy_(torch.where(moves, direction, grad))
    chunk.steps = each(lambda steps, lane_momentum: steps + (lane_momentum != 0), chunk.steps, momentum.value)
    return chunk.views(GRAD)


def _enter_rmsprop_momentum(grad: Tensor, buffer: Tensor, denominator: Tensor, factors: Factors) -> None:
    """Turn the gradient into RMSprop's direction where only some lanes have momentum."""
    momentum, rate = factors["momentum"], factors["minus_lr"]
    moves = mask_column(each(bool, momentum.value), len(grad), grad.device)
    moved = (buffer * momentum.column(buffer)).addcdiv_(grad, denominator)
    buffer.copy_(torch.where(moves, moved, buffer))
    straight = (grad * rate.column(grad)).div_(denominator)
    grad.copy_(torch.where(moves, moved, straight))


def _all_stepped(chunk: Chunk) -> bool:
    return all(chunk.steps) if isinstance(chunk.steps, tuple) else bool(chunk.steps)


def _next(step: float) -> float:
    return step + 1


def _bias_correction(chunk: Chunk, beta: Factor) -> Factor:
    if _is_on_host(chunk, beta):
        return Factor(each(lambda beta, step: float(1 - beta**step), beta.value, chunk.steps))
    return Factor.of_column(1 - beta.wide(chunk.device) ** chunk.wide_steps())


def _bias_correction_root(chunk: Chunk, beta: Factor) -> Factor:
    if _is_on_host(chunk, beta):
        return Factor(each(lambda beta, step: float((1 - beta**step) ** 0.5), beta.value, chunk.steps))
    return Factor.of_column((1 - beta.wide(chunk.device) ** chunk.wide_steps()) ** 0.5)


def _adagrad_divisor(chunk: Chunk, lr_decay: Factor) -> Factor:
    if _is_on_host(chunk, lr_decay):
        return Factor(each(lambda step, lr_decay: 1 + (step - 1) * lr_decay, chunk.steps, lr_decay.value))
    return Factor.of_column(1 + (chunk.wide_steps() - 1) * lr_decay.wide(chunk.device))


def _is_on_host(chunk: Chunk, factor: Factor) -> bool:
    """Tell whether a number that changes with each step is computed by Python.

    It is where the lanes agree on it, since a kernel takes a plain number as it is, and where it need not be copied.
    """
    differs = isinstance(factor.value, tuple) or isinstance(chunk.steps, tuple)
    return chunk.device.type == "cpu" or not differs


def _rest(kept: float) -> float:
    return 1 - kept


def _derive_sgd(numbers: Mapping[str, Lanewise]) -> dict[str, Lanewise]:
    return {"minus_lr": each(neg, numbers["lr"]), "gain": each(_rest, numbers["dampening"])}


def _derive_adam(numbers: Mapping[str, Lanewise]) -> dict[str, Lanewise]:
    shrink = each(lambda lr, decay: 1 - lr * decay, numbers["lr"], numbers["weight_decay"])
    return {"rest1": each(_rest, numbers["beta1"]), "rest2": each(_rest, numbers["beta2"]), "shrink": shrink}


def _derive_rmsprop(numbers: Mapping[str, Lanewise]) -> dict[str, Lanewise]:
    # A lane without momentum has its learning rate in the direction already.
    rate = each(lambda lr, momentum: -lr if momentum else 1, numbers["lr"], numbers["momentum"])
    return {
        "minus_lr": each(neg, numbers["lr"]),
        "rest": each(_rest, numbers["alpha"]),
        "rate_with_momentum": rate,
    }


def _adam_buffers(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if settings["amsgrad"] else ())


def _rmsprop_buffers(settings: Mapping[str, Any]) -> tuple[str, ...]:
    momentum = ("momentum_buffer",) if settings["momentum"] > 0 else ()
    return ("square_avg", *momentum, *(("grad_avg",) if settings["centered"] else ()))


_NOTHING = Factor(0)

_ADAM = Rule(
    numbers=("lr", "beta1", "beta2", "eps", "weight_decay"),
    flags=("amsgrad", "maximize", "decoupled_weight_decay"),
    update=update_adam,
    derive=_derive_adam,
    buffers=_adam_buffers,
)

RULES: Mapping[type[torch.optim.Optimizer], Rule] = {
    torch.optim.SGD: Rule(
        numbers=("lr", "momentum", "dampening", "weight_decay"),
        flags=("nesterov", "maximize"),
        update=update_sgd,
        derive=_derive_sgd,
        buffers=lambda settings: ("momentum_buffer",),
        counts_steps=False,
    ),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.Adagrad: Rule(
        numbers=("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"),
        flags=("maximize",),
        update=update_adagrad,
        derive=lambda numbers: {},
        buffers=lambda settings: ("sum",),
        fills={"sum": "initial_accumulator_value"},
        keeps_state_from_the_start=True,
    ),
    torch.optim.RMSprop: Rule(
        numbers=("lr", "alpha", "eps", "momentum", "weight_decay"),
        flags=("centered", "maximize"),
        update=update_rmsprop,
        derive=_derive_rmsprop,
        buffers=_rmsprop_buffers,
    ),
}
"""Optimizer class to rule; a subclass may do anything, so it has none."""
