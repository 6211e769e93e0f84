"""The models of transfer.py at every width, their data, and what is varied in their training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import data
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from workloads import Block

import headwater as hw


def mlp(scale: int) -> nn.Module:
    width = 1024 // scale
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(196, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


class Transformer(nn.Module):
    """Starts as GPT-2 does."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        width = 192 // scale
        self.tokens, self.places = nn.Embedding(84, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, head_size=8) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 84)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Residual(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outs), nn.BatchNorm2d(outs)
        self.around = nn.Sequential()
        if stride > 1:
            self.around = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.around(x))


def resnet(scale: int) -> nn.Module:
    first, second = 64 // scale, 128 // scale
    return nn.Sequential(
        nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
        Residual(first, first, 1), Residual(first, second, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(second, 10),
    )  # fmt: skip


def halved(images: data.Images, num_examples: int) -> TensorDataset:
    """Take images of half the height and width."""
    return TensorDataset(F.avg_pool2d(images.train_x[:num_examples], 2), images.train_y[:num_examples])


def verses(num_examples: int) -> TensorDataset:
    """Pieces of 64 characters from all over the works, and what follows each character."""
    text = data.shakespeare().train.long()
    starts = torch.randperm((len(text) - 1) // 64, generator=torch.Generator().manual_seed(0))[:num_examples] * 64
    places = starts[:, None] + torch.arange(65)
    return TensorDataset(text[places[:, :-1]], text[places[:, 1:]])


@dataclass(frozen=True, kw_only=True)
class Workload:
    title: str
    build: Callable[[int], nn.Module]
    """Writes the model at 1/scale of its width."""
    load: Callable[[int], TensorDataset]
    optimizer: type[torch.optim.Optimizer]
    settings: Mapping[str, Any]
    """What the optimizer is given besides the learning rate, where nothing else is drawn."""
    exponents: range
    """The learning rates of the grid, as powers of 2."""
    space: Mapping[str, Any]
    """What the random configurations are drawn from."""
    num_classes: int
    batch_size: int
    num_steps: int

    @property
    def rates(self) -> list[float]:
        return [2.0**exponent for exponent in self.exponents]


SGD_SPACE = {
    "lr": hw.loguniform(1e-3, 1.0),
    "momentum": hw.uniform(0.5, 0.99),
    "weight_decay": hw.loguniform(1e-5, 1e-2),
}
WORKLOADS = {
    "MLP": Workload(
        title="MLP on Fashion-MNIST, SGD with momentum",
        build=mlp, load=lambda count: halved(data.fashion_mnist(), count),
        optimizer=torch.optim.SGD, settings={"momentum": 0.9}, exponents=range(-7, 0), space=SGD_SPACE,
        num_classes=10, batch_size=64, num_steps=300,
    ),
    "Transformer": Workload(
        title="Transformer on Shakespeare, AdamW",
        build=Transformer, load=verses,
        optimizer=torch.optim.AdamW, settings={"betas": (0.9, 0.95)}, exponents=range(-11, -4),
        space={"lr": hw.loguniform(1e-4, 1e-1), "weight_decay": hw.loguniform(1e-3, 1.0)},
        num_classes=84, batch_size=8, num_steps=250,
    ),
    "ResNet": Workload(
        title="ResNet on CIFAR-10, SGD with momentum",
        build=resnet, load=lambda count: halved(data.cifar10(), count),
        optimizer=torch.optim.SGD, settings={"momentum": 0.9}, exponents=range(-6, 1), space=SGD_SPACE,
        num_classes=10, batch_size=64, num_steps=200,
    ),
}  # fmt: skip
