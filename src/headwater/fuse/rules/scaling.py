"""The operators under `torch.amp.GradScaler`, which keep one scale and one flag: here one of each per lane."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwater.fuse.gradient_scale import find_overflows, unscale
from headwater.fuse.hyperparameters import pick
from headwater.fuse.mode import LaneMode
from headwater.fuse.targets import promote
from headwater.torch_private import check_and_unscale, is_lane_tensor, stack_of, update_scale


def _check_and_unscale(mode: LaneMode, func: Any, grads: list[Tensor], found: Tensor, inverse: Tensor) -> None:
    stacks = [_stack_to_write(mode, func, grad) for grad in grads]
    found_stack = _stack_to_write(mode, func, found)
    found_stack.copy_(torch.maximum(found_stack, find_overflows(stacks)))
    unscale(stacks, stack_of(inverse) if is_lane_tensor(inverse) else inverse)


def _update_scale(mode: LaneMode, func: Any, scale: Tensor, tracker: Tensor, found: Tensor, *settings: Any) -> Tensor:
    scales, trackers = _stack_to_write(mode, func, scale), _stack_to_write(mode, func, tracker)
    for lane, own_found in enumerate(mode.stack(found)):
        func(scales[lane], trackers[lane], own_found, *(pick(setting, lane) for setting in settings))
    return scale


def _stack_to_write(mode: LaneMode, func: Any, tensor: Tensor) -> Tensor:
    if not is_lane_tensor(tensor):
        promote(tensor, mode.num_lanes, func.__name__, mode.swaps)
    return stack_of(tensor)


RULES: dict[Any, Any] = {
    check_and_unscale: _check_and_unscale,
    update_scale: _update_scale,
}
