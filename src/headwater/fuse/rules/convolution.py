"""Convolutions: lane by lane, side by side, or as one product of matrices, whichever is faster.

That depends on the machine, the shape and the direction, so it is measured. Every way takes and gives images whose
channels come last in memory, for pooling and normalising such images takes torch a fraction of the time on a CPU. Where
a model gains nothing from it, as whole steps will show, convolutions are left to torch's own batching.

Shapes: L = lanes, N = images, C = channels of the input, O = channels of the output, S = positions in an image and
R = in the kernel (in as many dimensions as there are), M = positions of all images of the output, K = R times C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode
from headwater.fuse.rules import shapes
from headwater.fuse.strategies import Strategies
from headwater.torch_private import apply_plainly, base_of, is_lane_tensor, lanes_of, stack_of

Gradients: TypeAlias = tuple[Tensor | None, ...]

LAYOUTS = ("channels last", "as torch has it")
"""Where the rules here pay if anything follows that gains from it, and where torch's own batching may be faster."""

_MOST_BYTES = 2**26
"""What an input may take when it is unfolded for a product."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a convolution does beside its weights."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    transposed: bool
    is_shared: bool
    """Whether all lanes see the same images; these have no dimension L."""

    def settings(self, num_lanes: int = 1) -> tuple[Any, ...]:
        """Return what `torch.convolution` wants to know of one lane, or of so many side by side."""
        groups = self.groups if self.is_shared else self.groups * num_lanes
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, groups

    @property
    def is_simple(self) -> bool:
        """Whether every channel of the output reads every channel of the input under the kernel."""
        return self.groups == 1 and not self.transposed

    def is_pointwise(self, kernel: Sequence[int]) -> bool:
        """Whether it does no more than to mix the channels of each position."""
        return self.is_simple and {*kernel, *self.stride} == {1} and set(self.padding) == {0}

    def skips(self, kernel: Sequence[int]) -> bool:
        """Whether it reads single positions and leaves some out: better to leave them out first.

        Torch 2.13 overruns memory in the gradient of such a layer, if channels come last and are fewer than eight.
        """
        is_single = {*kernel} == {1} and set(self.padding) == {0} and not self.transposed
        return is_single and set(self.stride) != {1}


def _convolve(
    mode: LaneMode, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
) -> Any:
    options = {**dict(zip(_OPTIONS[func], args, strict=False)), **kwargs}
    if not is_lane_tensor(weight) or not (bias is None or is_lane_tensor(bias)) or input.dim() != weight.dim():
        return NotImplemented
    if torch.is_autocast_enabled(weight.device.type) or not weight.is_floating_point():
        return mode.run_looped(func, (input, weight, bias), options)
    layer = _read(func, input, weight, options)
    if layer is None or _layout(mode, input, weight) != LAYOUTS[0]:
        return NotImplemented
    x = input.movedim(1, -1) if layer.is_shared else stack_of(input).movedim(2, -1)
    if layer.skips(weight.shape[2:]):
        read: tuple[Any, ...] = (..., *(slice(None, None, step) for step in layer.stride), slice(None))
        x = x[read]
        layer = replace(layer, stride=(1,) * len(layer.stride))
    x = x.contiguous()
    bias_LO = None if bias is None else stack_of(bias)
    y_LNSO: Tensor = _Convolution.apply(x, stack_of(weight), bias_LO, layer, mode.strategies)
    return lanes_of(y_LNSO.movedim(-1, 2))


def _layout(mode: LaneMode, input: Tensor, weight: Tensor) -> str:
    """Return how images are to lie in memory in this step, which whole steps have shown or are about to show."""
    weight_LOCR = stack_of(weight)
    if not (torch.is_grad_enabled() and weight_LOCR.requires_grad):
        return mode.strategies.race(mode, LAYOUTS)
    kind = (tuple(weight.shape), tuple(input.shape), (mode.num_lanes - 1).bit_length(), weight.dtype)
    return mode.strategies.race(mode, LAYOUTS, weight_LOCR.data_ptr(), kind)


def _read(func: Any, input: Tensor, weight: Tensor, options: dict[str, Any]) -> _Layer | None:
    """Return the layer, or None where torch has to pad one side more than the other."""
    rank = weight.dim() - 2
    stride, dilation = (_spread(options.get(name, 1), rank) for name in ("stride", "dilation"))
    padding = options.get("padding", 0)
    if padding == "same":
        margins = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
        if set(stride) != {1} or any(margin % 2 for margin in margins):
            return None
        padding = [margin // 2 for margin in margins]
    return _Layer(
        stride=stride,
        padding=_spread(0 if padding == "valid" else padding, rank),
        dilation=dilation,
        output_padding=_spread(options.get("output_padding", 0), rank),
        groups=options.get("groups", 1),
        transposed="output_padding" in _OPTIONS[func],
        is_shared=not is_lane_tensor(input),
    )


def _spread(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * rank if len(values) == 1 else values


class _Convolution(torch.autograd.Function):
    """Lane l's kernels on lane l's images; both directions choose their way by themselves."""

    apply: Any = classmethod(apply_plainly)

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_LOCR: Tensor, bias_LO: Tensor | None, layer: _Layer, strategies: Strategies
    ) -> Tensor:
        offered = _offered(layer, x, weight_LOCR)
        ways = {name: partial(_FORWARD[name], layer, x, weight_LOCR, bias_LO) for name in offered}
        key = ("convolution", *_kind(layer, x, weight_LOCR))
        y_LNSO: Tensor
        y_LNSO, cols = ways[strategies.choose(key, ways, size=_num_images(layer, x))]()
        ctx.layer, ctx.strategies = layer, strategies
        ctx.save_for_backward(x, weight_LOCR, cols)
        return y_LNSO if base_of(y_LNSO) is None else y_LNSO.clone()  # what comes next may work in place

    @staticmethod
    def backward(ctx: Any, grad_LNSO: Tensor) -> Any:
        layer: _Layer = ctx.layer
        x, weight_LOCR, cols = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        operands = (layer, grad_LNSO.contiguous(), x, weight_LOCR, cols, needs)
        if torch.is_grad_enabled():
            return *_loop_back(*operands), None, None
        ways = {name: partial(_BACKWARD[name], *operands) for name in _offered(layer, x, weight_LOCR)}
        key = ("gradient of convolution", *needs, *_kind(layer, x, weight_LOCR))
        return *ways[ctx.strategies.choose(key, ways, size=_num_images(layer, x))](), None, None


def _offered(layer: _Layer, x: Tensor, weight_LOCR: Tensor) -> Iterator[str]:
    """Name the ways that can serve; those that are fastest more often come first."""
    kernel = weight_LOCR.shape[3:]
    unfolded_bytes = x.numel() * x.element_size() * math.prod(kernel) // math.prod(layer.stride)
    if layer.is_pointwise(kernel) or (layer.is_shared and layer.is_simple and unfolded_bytes <= _MOST_BYTES):
        yield "product"
    yield "looped"
    if layer.is_simple or not layer.is_shared:
        yield "side by side"


def _kind(layer: _Layer, x: Tensor, weight_LOCR: Tensor) -> tuple[Any, ...]:
    """What must be alike for one measurement to serve: all but the number of images and, roughly, of lanes."""
    num_lanes, *kernel = weight_LOCR.shape
    image = x.shape[1:] if layer.is_shared else x.shape[2:]
    return layer, (num_lanes - 1).bit_length(), tuple(kernel), tuple(image), x.dtype, x.device.type


def _num_images(layer: _Layer, x: Tensor) -> int:
    return x.shape[0] if layer.is_shared else x.shape[1]


def _loop(layer: _Layer, x: Tensor, weight_LOCR: Tensor, bias_LO: Tensor | None) -> tuple[Tensor, Tensor | None]:
    num_lanes = len(weight_LOCR)
    biases = [None] * num_lanes if bias_LO is None else bias_LO.unbind()
    lanes = zip(_images(layer, x, num_lanes), weight_LOCR.unbind(), biases, strict=True)
    first_NOS = torch.convolution(*next(lanes), *layer.settings())
    y_LNSO = first_NOS.new_empty(num_lanes, *first_NOS.movedim(1, -1).shape)
    y_LNOS = y_LNSO.movedim(-1, 2)
    y_LNOS[0] = first_NOS
    for lane, operands in enumerate(lanes, start=1):
        y_LNOS[lane] = torch.convolution(*operands, *layer.settings())
    return y_LNSO, None


def _loop_back(
    layer: _Layer, grad_LNSO: Tensor, x: Tensor, weight_LOCR: Tensor, cols: Tensor | None, needs: Sequence[bool]
) -> Gradients:
    """Torch can take the gradient of this one again."""
    num_lanes, num_outputs = len(weight_LOCR), grad_LNSO.shape[-1]
    d_x, d_weight, d_bias = (
        torch.empty_like(x),
        torch.empty_like(weight_LOCR),
        grad_LNSO.new_empty(num_lanes, num_outputs),
    )
    rooms = (d_x.movedim(-1, 1 if layer.is_shared else 2), d_weight, d_bias)
    operands = (grad_LNSO.movedim(-1, 2).unbind(), _images(layer, x, num_lanes), weight_LOCR.unbind())
    for lane, own in enumerate(zip(*operands, strict=True)):
        parts = torch.ops.aten.convolution_backward(*own, [num_outputs], *layer.settings(), needs)
        for room, part, needed in zip(rooms, parts, needs, strict=True):
            if needed:
                room[lane] = part
    return tuple(item if needed else None for item, needed in zip((d_x, d_weight, d_bias), needs, strict=True))


def _images(layer: _Layer, x: Tensor, num_lanes: int) -> Sequence[Tensor]:
    """Return the images of each lane as torch wants to see them."""
    return [x.movedim(-1, 1)] * num_lanes if layer.is_shared else x.movedim(-1, 2).unbind()


def _side_by_side(
    layer: _Layer, x: Tensor, weight_LOCR: Tensor, bias_LO: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """One layer whose channels are those of all lanes, each lane a group of its own unless they see the same images."""
    num_lanes = len(weight_LOCR)
    bias = None if bias_LO is None else bias_LO.flatten()
    y = torch.convolution(_beside(layer, x), weight_LOCR.flatten(0, 1), bias, *layer.settings(num_lanes))
    return _apart(y, num_lanes), None


def _side_by_side_back(
    layer: _Layer, grad_LNSO: Tensor, x: Tensor, weight_LOCR: Tensor, cols: Tensor | None, needs: Sequence[bool]
) -> Gradients:
    num_lanes, num_outputs = len(weight_LOCR), grad_LNSO.shape[-1]
    grad = grad_LNSO.movedim(0, -2).flatten(-2).movedim(-1, 1)
    d_x, d_weight, d_bias = torch.ops.aten.convolution_backward(
        grad, _beside(layer, x), weight_LOCR.flatten(0, 1), [num_lanes * num_outputs], *layer.settings(num_lanes), needs
    )
    return (
        _apart(d_x, num_lanes) if needs[0] else None,
        d_weight.view(weight_LOCR.shape) if needs[1] else None,
        d_bias.view(num_lanes, num_outputs) if needs[2] else None,
    )


def _beside(layer: _Layer, x: Tensor) -> Tensor:
    return (x if layer.is_shared else x.movedim(0, -2).flatten(-2)).movedim(-1, 1)


def _apart(images: Tensor, num_lanes: int) -> Tensor:
    channels_last = images.movedim(1, -1)
    return channels_last.view(*channels_last.shape[:-1], num_lanes, -1).movedim(-2, 0).contiguous()


def _product(layer: _Layer, x: Tensor, weight_LOCR: Tensor, bias_LO: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Put what lies under the kernel side by side, so that one product of matrices does the rest."""
    num_lanes, num_outputs, _, *kernel = weight_LOCR.shape
    cols = _unfold(layer, x, kernel)
    cols_LMK = _rows(layer, cols, num_lanes)
    weight_LKO = weight_LOCR.movedim(1, -1).movedim(1, -2).reshape(num_lanes, -1, num_outputs)
    y_LNSO = x.new_empty(num_lanes, *cols.shape[-2 - len(kernel) : -1], num_outputs)
    if bias_LO is None:
        torch.bmm(cols_LMK, weight_LKO, out=y_LNSO.flatten(1, -2))
    else:
        torch.baddbmm(bias_LO.unsqueeze(1), cols_LMK, weight_LKO, out=y_LNSO.flatten(1, -2))
    return y_LNSO, cols


def _product_back(
    layer: _Layer, grad_LNSO: Tensor, x: Tensor, weight_LOCR: Tensor, cols: Tensor | None, needs: Sequence[bool]
) -> Gradients:
    num_lanes, num_outputs, num_inputs, *kernel = weight_LOCR.shape
    grad_LMO = grad_LNSO.flatten(1, -2)
    d_x = d_weight_LOCR = None
    if needs[0]:
        d_x = torch.bmm(grad_LMO, weight_LOCR.flatten(2)).view(x.shape)
    if needs[1]:
        cols_LMK = _rows(layer, _unfold(layer, x, kernel) if cols is None else cols, num_lanes)
        d_weight_LRCO = torch.bmm(cols_LMK.mT, grad_LMO).view(num_lanes, *kernel, num_inputs, num_outputs)
        d_weight_LOCR = d_weight_LRCO.movedim(-1, 1).movedim(-1, 2).contiguous()
    return d_x, d_weight_LOCR, grad_LMO.sum(1) if needs[2] else None


def _rows(layer: _Layer, cols: Tensor, num_lanes: int) -> Tensor:
    return (cols.expand(num_lanes, *cols.shape) if layer.is_shared else cols).flatten(1, -2)


def _unfold(layer: _Layer, x: Tensor, kernel: Sequence[int]) -> Tensor:
    """Return for each position of the output what the kernel sees there, in one row."""
    if layer.is_pointwise(kernel):
        return x
    rank = len(kernel)
    margins = [margin for margin in reversed(layer.padding) for _ in range(2)]
    images = F.pad(x, (0, 0, *margins))
    ahead, sizes, channels = images.shape[: -1 - rank], images.shape[-1 - rank : -1], images.shape[-1]
    steps = images.stride()
    strides = [step * stride for step, stride in zip(steps[-1 - rank : -1], layer.stride, strict=True)]
    taps = [step * dilation for step, dilation in zip(steps[-1 - rank : -1], layer.dilation, strict=True)]
    reaches = [dilation * (taps - 1) for dilation, taps in zip(layer.dilation, kernel, strict=True)]
    triples = zip(sizes, reaches, layer.stride, strict=True)
    positions = [(size - reach - 1) // stride + 1 for size, reach, stride in triples]
    windows = images.as_strided((*ahead, *positions, *kernel, channels), (*steps[: len(ahead)], *strides, *taps, 1))
    return windows.flatten(-1 - rank)


def _average(mode: LaneMode, func: Any, input: Tensor, output_size: Any) -> Any:
    """The mean over an image, taken such that the gradient lies in memory as the image does."""
    rank = _RANKS[func]
    if set(_spread(output_size, rank)) != {1} or not is_lane_tensor(input) or input.dim() != rank + 2:
        return shapes.RULES[func](mode, func, input, output_size) if func in shapes.RULES else NotImplemented
    images_LNSC = stack_of(input).movedim(2, -1)
    return lanes_of(images_LNSC.flatten(2, -2).mean(2).view(*images_LNSC.shape[:2], -1, *(1,) * rank))


_FORWARD: dict[str, Any] = {"looped": _loop, "side by side": _side_by_side, "product": _product}
_BACKWARD: dict[str, Any] = {"looped": _loop_back, "side by side": _side_by_side_back, "product": _product_back}

_PLAIN = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_OPTIONS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys([torch.conv1d, torch.conv2d, torch.conv3d], _PLAIN),
    **dict.fromkeys([torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d], _TRANSPOSED),
}
_RANKS: dict[Any, int] = {
    torch.adaptive_avg_pool1d: 1,
    F.adaptive_avg_pool1d: 1,
    F.adaptive_avg_pool2d: 2,
    F.adaptive_avg_pool3d: 3,
}

RULES: dict[Any, Any] = {**dict.fromkeys(_OPTIONS, _convolve), **dict.fromkeys(_RANKS, _average)}
