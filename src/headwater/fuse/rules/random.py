"""Random numbers: every lane draws what it would draw alone, be its probability shared or its own.

In which order torch fills a tensor depends on the order of its dimensions in memory, so the numbers are drawn into
memory that is laid out like one lane's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.devices import default_generator
from headwater.fuse.layouts import is_displaced
from headwater.fuse.mode import LaneMode
from headwater.fuse.per_lane import PerLane
from headwater.torch_private import is_lane_tensor, lanes_of, stack_of


def _dropout(
    mode: LaneMode, func: Any, input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training:
        return input
    if not _may_draw(input, p):
        return NotImplemented
    like = _one_lane_of(input) if is_lane_tensor(input) else input
    draw = _noise if like.device.type == "cpu" else _noise_of_kernel_in_place if inplace else _noise_of_kernel
    noise = lanes_of(_noise_per_lane(draw, like, p)) if isinstance(p, PerLane) else draw(like, p)
    answer: Tensor = mode.compute(Tensor.mul_ if inplace else Tensor.mul, (input, noise))
    return answer


def _one_lane_of(tensor: Tensor) -> Tensor:
    one = stack_of(tensor)[0]
    return torch.empty(one.shape, dtype=one.dtype, device=one.device) if is_displaced(tensor) else one


def _may_draw(input: Tensor, p: Any) -> bool:
    """Tell whether torch would draw at all; lanes that draw and lanes that do not cannot share a stream of numbers."""
    if not isinstance(p, PerLane):
        return is_lane_tensor(input) and 0 < p < 1
    _part_where_nothing_is_drawn(p)
    return all(0 < value < 1 for value in p.values)


def _part_where_nothing_is_drawn(p: PerLane) -> None:
    bool(p == 0)
    bool(p == 1)


def _noise_per_lane(draw: Callable[[Tensor, float], Tensor], like: Tensor, p: PerLane) -> Tensor:
    generator = default_generator(like.device)
    state = generator.get_state()
    noise = []
    for value in p.values:
        generator.set_state(state)
        noise.append(draw(like, value))
    return torch.stack(noise)


def _noise(like: Tensor, p: float) -> Tensor:
    """Draw what torch's dropout draws for one lane."""
    return torch.empty_like(like).bernoulli_(1 - p).div_(1 - p)


def _noise_of_kernel(like: Tensor, p: float) -> Tensor:
    """Draw by the kernel of an accelerator, which takes other numbers from the stream than `bernoulli_` does."""
    return torch.dropout(torch.ones_like(like), p, True)


def _noise_of_kernel_in_place(like: Tensor, p: float) -> Tensor:
    return torch.dropout_(torch.ones_like(like), p, True)


def _other_dropout(
    mode: LaneMode, func: Any, input: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """Whole channels, or towards the mean: lane by lane, for torch's batching draws for all lanes at once."""
    if not training:
        return NotImplemented
    if isinstance(p, PerLane):
        _part_where_nothing_is_drawn(p)
    answer: Tensor = mode.run_looped(func, (input,), {"p": p, "training": training, "inplace": inplace})
    return answer


def _fill(mode: LaneMode, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Fill a tensor with numbers in place: drawn once, for all lanes draw the same."""
    if not is_lane_tensor(tensor) or any(isinstance(arg, Tensor | PerLane) for arg in (*args, *kwargs.values())):
        return NotImplemented
    stack = stack_of(tensor)
    stack.copy_(func(_room_for_one(stack), *args, **kwargs))
    return tensor


def _room_for_one(stack: Tensor) -> Tensor:
    """Return memory laid out as one lane alone would have it; lanes may lie in one another."""
    one = stack[0]
    lanes_lie_apart = all(stack.stride(0) >= stride for stride in one.stride())
    return (
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
        if lanes_lie_apart
        else (torch.empty_like(one))
    )


_FILLS = ("normal_", "uniform_", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_", "bernoulli_")

RULES: dict[Any, Any] = {
    F.dropout: _dropout,
    **dict.fromkeys([F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout], _other_dropout),
    **dict.fromkeys([getattr(Tensor, name) for name in _FILLS], _fill),
}
