"""Layers of lanes equal separate layers: outputs, gradients, updated weights and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from tests.fuse.parity import Parity
from torch import Tensor, nn
from torch.nn.utils import parametrizations

Layer: TypeAlias = Callable[[], nn.Module]

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")  # torch itself, once


class Scaled(nn.Module):
    """The layer behind a factor, so that each lane gives it another input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(()) + 1)
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(x * self.factor)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bilinear, self.linear = nn.Bilinear(3, 4, 2), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Any:
        return self.bilinear(x, self.linear(x)), self.bilinear(x, torch.ones(len(x), 4, dtype=x.dtype))


class PoolAndBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Any:
        return self.unpool(*self.pool(x))


CONVOLUTIONS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(4, 6, 3, padding=2), (2, 4, 9)),
    "1d-same-grouped": (lambda: nn.Conv1d(4, 4, 3, padding="same", groups=2, dilation=2), (2, 4, 8)),
    "1d-circular": (lambda: nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 9)),
    "2d": (lambda: nn.Conv2d(4, 6, 3), (2, 4, 7, 8)),
    "2d-strided-dilated": (lambda: nn.Conv2d(4, 6, 3, stride=2, dilation=2, padding=(2, 1)), (2, 4, 9, 8)),
    "2d-grouped-bare": (lambda: nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 7, 8)),
    "2d-depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), (2, 4, 7, 8)),
    "2d-reflect": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 8)),
    "2d-replicate": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"), (2, 4, 7, 8)),
    "2d-one-image": (lambda: nn.Conv2d(4, 4, 3), (4, 7, 8)),
    "3d": (lambda: nn.Conv3d(2, 3, 3, padding="same"), (2, 2, 4, 5, 4)),
    "transposed-1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5)),
    "transposed-2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2, bias=False), (2, 4, 5, 4)),
}

LINEAR: dict[str, tuple[Layer, tuple[int, ...]]] = {
    **{f"{len(shape)}d": (lambda: nn.Linear(5, 4), shape) for shape in [(5,), (3, 5), (2, 3, 5), (2, 2, 3, 5)]},
    **{f"{len(shape)}d-bare": (lambda: nn.Linear(5, 4, bias=False), shape) for shape in [(5,), (3, 5), (2, 3, 5)]},
    "no-examples": (lambda: nn.Linear(5, 4), (0, 5)),
    "bilinear": (TwoInputs, (5, 3)),
    "rnn-cell": (lambda: nn.RNNCell(5, 4, nonlinearity="relu"), (3, 5)),
    "lstm-cell": (lambda: nn.LSTMCell(5, 4), (3, 5)),
    "gru-cell": (lambda: nn.GRUCell(5, 4), (3, 5)),
    "gru-cell-one-example": (lambda: nn.GRUCell(5, 4), (5,)),
    "weight-norm": (lambda: parametrizations.weight_norm(nn.Linear(5, 4)), (3, 5)),
    "spectral-norm": (lambda: parametrizations.spectral_norm(nn.Linear(5, 4)), (3, 5)),
    "spectral-norm-convolution": (lambda: parametrizations.spectral_norm(nn.Conv2d(2, 3, 2)), (3, 2, 4, 4)),
    "old-spectral-norm": (lambda: nn.utils.spectral_norm(nn.Linear(5, 4)), (3, 5)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(4, 4)), (3, 4)),
}

NORMS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "batch-1d": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "batch-1d-sequence": (lambda: nn.BatchNorm1d(3, momentum=None), (4, 3, 5)),
    "batch-2d": (lambda: nn.BatchNorm2d(3), (4, 3, 3, 3)),
    "batch-2d-forgetful": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 3, 3)),
    "batch-2d-bare": (lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 3, 3)),
    "batch-3d": (lambda: nn.BatchNorm3d(3), (4, 3, 2, 2, 3)),
    "layer": (lambda: nn.LayerNorm(5), (2, 3, 5)),
    "layer-2d-no-bias": (lambda: nn.LayerNorm((3, 5), bias=False), (2, 3, 5)),
    "layer-bare": (lambda: nn.LayerNorm(5, elementwise_affine=False), (2, 5)),
    "group": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "instance-1d": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 5)),
    "instance-2d": (lambda: nn.InstanceNorm2d(3), (2, 3, 4, 4)),
    "instance-3d": (lambda: nn.InstanceNorm3d(2, affine=True), (2, 2, 3, 3, 3)),
    "rms": (lambda: nn.RMSNorm(5), (2, 5)),
    "local-response": (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 3)),
}

POOLS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "max-1d": (lambda: nn.MaxPool1d(2, return_indices=True), (2, 3, 8)),
    "max-2d": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True, return_indices=True), (2, 3, 8, 7)),
    "max-2d-one-image": (lambda: nn.MaxPool2d(2), (3, 8, 7)),
    "max-3d": (lambda: nn.MaxPool3d(2, dilation=2), (2, 2, 5, 5, 5)),
    "average-1d": (lambda: nn.AvgPool1d(2), (2, 3, 8)),
    "average-2d": (lambda: nn.AvgPool2d(3, padding=1, count_include_pad=False), (2, 3, 8, 8)),
    "average-3d": (lambda: nn.AvgPool3d(2), (2, 2, 4, 4, 4)),
    "adaptive-average-1d": (lambda: nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
    "adaptive-average-2d": (lambda: nn.AdaptiveAvgPool2d((None, 3)), (2, 3, 8, 7)),
    "adaptive-average-2d-to-one": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 8, 7)),
    "adaptive-average-3d": (lambda: nn.AdaptiveAvgPool3d(2), (2, 3, 4, 4, 5)),
    "adaptive-max-1d": (lambda: nn.AdaptiveMaxPool1d(3, return_indices=True), (2, 3, 8)),
    "adaptive-max-2d": (lambda: nn.AdaptiveMaxPool2d(3), (2, 3, 8, 7)),
    "adaptive-max-3d": (lambda: nn.AdaptiveMaxPool3d(2), (2, 3, 4, 4, 5)),
    "power-1d": (lambda: nn.LPPool1d(2, 3), (2, 3, 8)),
    "power-2d": (lambda: nn.LPPool2d(2, 3), (2, 3, 8, 7)),
    "fractional-2d": (lambda: nn.FractionalMaxPool2d(2, output_size=3), (2, 3, 8, 8)),
    "max-and-back": (PoolAndBack, (2, 3, 6, 6)),
}

SHAPES: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "nearest": (lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 5)),
    "linear": (lambda: nn.Upsample(scale_factor=2, mode="linear"), (2, 3, 4)),
    "bilinear": (lambda: nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), (2, 3, 4, 5)),
    "bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (2, 3, 4, 5)),
    "trilinear": (lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 3, 3, 3)),
    "area": (lambda: nn.Upsample(size=(3, 3), mode="area"), (2, 3, 4, 5)),
    "pixel-shuffle": (lambda: nn.PixelShuffle(2), (2, 8, 3, 3)),
    "pixel-unshuffle": (lambda: nn.PixelUnshuffle(2), (2, 2, 4, 4)),
    "channel-shuffle": (lambda: nn.ChannelShuffle(2), (2, 4, 3, 3)),
    "zero-pad": (lambda: nn.ZeroPad2d((1, 2, 0, 1)), (2, 3, 5, 4)),
    "constant-pad": (lambda: nn.ConstantPad1d(2, 3.5), (2, 3, 5)),
    "reflection-pad": (lambda: nn.ReflectionPad2d((1, 2, 0, 1)), (2, 3, 5, 4)),
    "replication-pad": (lambda: nn.ReplicationPad3d(1), (2, 3, 4, 4, 4)),
    "circular-pad": (lambda: nn.CircularPad2d((1, 2, 0, 1)), (2, 3, 5, 4)),
    "flatten": (lambda: nn.Flatten(1, -2), (2, 3, 4, 5)),
    "unflatten": (lambda: nn.Unflatten(1, (2, 3)), (4, 6)),
    "fold": (lambda: nn.Fold((4, 5), (2, 2)), (2, 8, 12)),
    "unfold": (lambda: nn.Unfold((2, 2)), (2, 2, 4, 5)),
}

ACTIVATIONS: dict[str, Layer] = {
    **{
        kind.__name__: kind
        for kind in (
            nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.PReLU,
            nn.ReLU, nn.ReLU6, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink,
            nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.GLU, nn.Softmax2d,
        )
    },
    "PReLU-by-channel": lambda: nn.PReLU(3),
    "GELU-tanh": lambda: nn.GELU("tanh"),
    "Softmax": lambda: nn.Softmax(1),
    "Softmin": lambda: nn.Softmin(1),
    "LogSoftmax": lambda: nn.LogSoftmax(-1),
    "Threshold": lambda: nn.Threshold(0.1, 2.0),
    "ReLU-in-place": lambda: nn.ReLU(inplace=True),
    "ELU-in-place": lambda: nn.ELU(inplace=True),
    "LeakyReLU-in-place": lambda: nn.LeakyReLU(inplace=True),
    "Hardtanh-in-place": lambda: nn.Hardtanh(inplace=True),
    "SiLU-in-place": lambda: nn.SiLU(inplace=True),
    "Threshold-in-place": lambda: nn.Threshold(0.1, 2.0, inplace=True),
}  # fmt: skip

FAMILIES: dict[str, dict[str, tuple[Layer, tuple[int, ...]]]] = {
    "convolution": CONVOLUTIONS,
    "linear": LINEAR,
    "norm": NORMS,
    "pool": POOLS,
    "shape": SHAPES,
    "activation": {name: (layer, (2, 3, 4, 6)) for name, layer in ACTIVATIONS.items()},
}
CASES = {f"{family}-{name}": case for family, cases in FAMILIES.items() for name, case in cases.items()}


@pytest.mark.parametrize("num_lanes", [1, 2, 7])
@pytest.mark.parametrize("case", CASES)
def test_a_layer_fed_by_lanes_equals_separate_layers(case: str, num_lanes: int) -> None:
    layer, shape = CASES[case]
    Parity().check(lambda: Scaled(layer()), feed(shape), num_lanes)


@pytest.mark.parametrize("case", [case for case in CASES if case.split("-")[0] in ("convolution", "linear", "norm")])
def test_a_layer_fed_with_what_lanes_share_equals_separate_layers(case: str) -> None:
    layer, shape = CASES[case]
    Parity().check(layer, feed(shape))


@pytest.mark.parametrize("case", [case for case in CASES if case.split("-")[0] in ("norm", "pool")])
def test_an_evaluated_layer_equals_separate_layers(case: str) -> None:
    layer, shape = CASES[case]
    Parity().check(lambda: Scaled(layer()), feed(shape), train=False)


@pytest.mark.parametrize("case", CASES)
def test_single_precision_is_kept(case: str) -> None:
    layer, shape = CASES[case]
    Parity(dtype=torch.float32, tolerance=5e-5, num_steps=1).check(lambda: Scaled(layer()), feed(shape), 2)


def feed(shape: tuple[int, ...]) -> Callable[[nn.Module], Any]:
    """The same examples at every step, of the type of the model."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def step(model: nn.Module) -> Any:
        tensors = [*model.parameters(), *model.buffers()]
        return model(x.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), x.dtype)))

    return step
