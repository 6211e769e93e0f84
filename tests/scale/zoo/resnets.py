"""Residual networks: plain, wide, grouped; with the stem for small pictures or the one for large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Basic(nn.Module):
    """Two convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, into: int, width: int, stride: int, groups: int = 1, per_group: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut_of(into, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A convolution, perhaps grouped, between two that change the width."""

    expansion = 4

    def __init__(self, into: int, width: int, stride: int, groups: int = 1, per_group: int = 64) -> None:
        super().__init__()
        inner = width * per_group // 64 * groups
        self.conv1 = nn.Conv2d(into, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, width * self.expansion, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut_of(into, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        out += self.shortcut(x)
        return self.relu(out)  # type: ignore[no-any-return]  # modules return Any


def shortcut_of(into: int, out: int, stride: int) -> nn.Module:
    if stride == 1 and into == out:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class ResNet(nn.Module):
    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        depths: Sequence[int],
        classes: int = 10,
        stem: Literal["small", "large"] = "large",
        groups: int = 1,
        per_group: int = 64,
    ) -> None:
        super().__init__()
        first = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if stem == "small" else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        pool = nn.Identity() if stem == "small" else nn.MaxPool2d(3, 2, 1)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), pool)
        self.in_planes = 64
        stages = []
        for place, depth in enumerate(depths):
            blocks = []
            for number in range(depth):
                stride = 2 if place and not number else 1
                blocks.append(block(self.in_planes, 64 * 2**place, stride, groups, per_group))
                self.in_planes = 64 * 2**place * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.fc = nn.Linear(self.in_planes, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return self.fc(torch.flatten(x, 1))  # type: ignore[no-any-return]  # modules return Any


def resnet18() -> nn.Module:
    return ResNet(Basic, (2, 2, 2, 2), stem="small")


def resnet50(depths: Sequence[int] = (3, 4, 6, 3)) -> nn.Module:
    return ResNet(Bottleneck, depths)


def wide_resnet50(depths: Sequence[int] = (3, 4, 6, 3)) -> nn.Module:
    return ResNet(Bottleneck, depths, per_group=128)


def resnext50(depths: Sequence[int] = (3, 4, 6, 3)) -> nn.Module:
    return ResNet(Bottleneck, depths, groups=32, per_group=4)


class Padded(nn.Module):
    """A block whose shortcut adds empty channels, by a function that closes over the width."""

    def __init__(self, into: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, planes, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(planes)
        self.shortcut: nn.Module = nn.Sequential()
        if stride != 1:
            self.shortcut = Calling(lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes // 4, planes // 4)))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class Calling(nn.Module):
    def __init__(self, function) -> None:  # type: ignore[no-untyped-def]  # any function of a tensor
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)  # type: ignore[no-any-return]  # any function of a tensor


def resnet20_padded() -> nn.Module:
    widths = [(16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *[Padded(*width) for width in widths],
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
