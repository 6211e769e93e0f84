"""Convolutional networks of other kinds: VGG, MobileNetV3, DenseNet, ConvNeXt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def vgg11(classes: int = 10) -> nn.Module:
    """With batch normalisation, and the three wide linear layers after a 7 by 7 pooling."""
    layers: list[nn.Module] = []
    into = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if width:
            layers += [nn.Conv2d(into, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            into = width
        else:
            layers.append(nn.MaxPool2d(2, 2))
    return Vgg(nn.Sequential(*layers), classes)


class Vgg(nn.Module):
    def __init__(self, features: nn.Module, classes: int) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))  # type: ignore[no-any-return]  # modules return Any


class SqueezeExcite(nn.Module):
    """Scales each channel by what a small network makes of all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _round_to_eight(channels / 4)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(scale))))


class Inverted(nn.Module):
    """Widens, convolves channel by channel, and narrows again."""

    def __init__(self, into: int, kernel: int, wide: int, out: int, excite: bool, hard: bool, stride: int) -> None:
        super().__init__()
        act: type[nn.Module] = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if wide != into:
            layers += [nn.Conv2d(into, wide, 1, bias=False), nn.BatchNorm2d(wide), act()]
        layers += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            act(),
        ]
        if excite:
            layers.append(SqueezeExcite(wide))
        layers += [nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return x + out if self.adds else out


_MOBILE = (
    (16, 3, 16, 16, False, False, 1),
    (16, 3, 64, 24, False, False, 2),
    (24, 3, 72, 24, False, False, 1),
    (24, 5, 72, 40, True, False, 2),
    (40, 5, 120, 40, True, False, 1),
    (40, 5, 120, 40, True, False, 1),
    (40, 3, 240, 80, False, True, 2),
    (80, 3, 200, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 480, 112, True, True, 1),
    (112, 3, 672, 112, True, True, 1),
    (112, 5, 672, 160, True, True, 2),
    (160, 5, 960, 160, True, True, 1),
    (160, 5, 960, 160, True, True, 1),
)


def mobilenet_v3() -> nn.Module:
    """The large variant."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.Hardswish(),
        *[Inverted(*setting) for setting in _MOBILE],
        nn.Conv2d(160, 960, 1, bias=False),
        nn.BatchNorm2d(960),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(960, 1280),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(1280, 10),
    )


def _round_to_eight(value: float) -> int:
    return max(8, int(value + 4) // 8 * 8)


class DenseLayer(nn.Module):
    """Adds `growth` channels to those it is given."""

    def __init__(self, into: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(into)
        self.conv1 = nn.Conv2d(into, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, inputs: list[Tensor]) -> Tensor:
        out = self.conv1(F.relu(self.norm1(torch.cat(inputs, 1))))
        return self.conv2(F.relu(self.norm2(out)))  # type: ignore[no-any-return]  # modules return Any


class DenseBlock(nn.Module):
    def __init__(self, into: int, growth: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(into + number * growth, growth) for number in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet121(depths: Sequence[int] = (6, 12, 24, 16), growth: int = 32) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for place, depth in enumerate(depths):
        layers.append(DenseBlock(width, growth, depth))
        width += depth * growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if place < len(depths) - 1:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            width //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class ConvNextBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.wide = nn.Linear(dim, 4 * dim)
        self.narrow = nn.Linear(4 * dim, dim)
        self.gain = nn.Parameter(1e-6 * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out = self.gain * self.narrow(F.gelu(self.wide(out)))
        return x + out.permute(0, 3, 1, 2)  # type: ignore[no-any-return]  # modules return Any


class ChannelNorm(nn.LayerNorm):
    """Normalises the channels of pictures whose channels come first."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


def convnext(depths: Sequence[int] = (3, 3, 9, 3), dims: Sequence[int] = (96, 192, 384, 768)) -> nn.Module:
    layers: list[nn.Module] = []
    into = 3
    for place, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
        if place:
            layers += [ChannelNorm(into), nn.Conv2d(into, dim, 2, 2)]
        else:
            layers += [nn.Conv2d(into, dim, 4, 4), ChannelNorm(dim)]
        layers += [ConvNextBlock(dim) for _ in range(depth)]
        into = dim
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(into), nn.Linear(into, 10))
