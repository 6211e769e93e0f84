"""The plain PyTorch models of the parity suite: narrow, but as deep as the real ones."""

from __future__ import annotations

from itertools import pairwise

from tests.parity.tasks import (
    NUM_CLASSES,
    NUM_TOKENS,
    Settings,
    Task,
    draw_images,
    draw_sentences,
    draw_vectors,
)
from torch import Tensor, nn


def build_mlp(settings: Settings) -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Dropout(settings["dropout"]),
        nn.LayerNorm(16), nn.Linear(16, NUM_CLASSES),
    )  # fmt: skip


def build_cnn(settings: Settings) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(settings["dropout"]), nn.Linear(8, NUM_CLASSES),
    )  # fmt: skip


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and the way around them."""

    def __init__(self, num_inputs: int, num_outputs: int, stride: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_inputs, num_outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(num_outputs)
        self.conv2 = nn.Conv2d(num_outputs, num_outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_outputs)
        self.activate = activation(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or num_inputs != num_outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_inputs, num_outputs, 1, stride, bias=False), nn.BatchNorm2d(num_outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.activate(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        activated: Tensor = self.activate(y)
        return activated


class ResNet18(nn.Module):
    """ResNet-18 for CIFAR: a 3x3 stem without pooling, then four stages of two blocks."""

    def __init__(self, width: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), activation(inplace=True)
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = []
        for stage, (before, after) in enumerate(pairwise(widths)):
            blocks.append(ResidualBlock(before, after, 1 if stage == 0 else 2, activation))
            blocks.append(ResidualBlock(after, after, 1, activation))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def build_separable(activation: type[nn.Module]) -> nn.Module:
    """Depthwise convolutions, then pointwise ones."""

    def block(num_inputs: int, num_outputs: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(num_inputs, num_inputs, 3, stride, 1, groups=num_inputs, bias=False),
            nn.BatchNorm2d(num_inputs), activation(inplace=True),
            nn.Conv2d(num_inputs, num_outputs, 1, bias=False), nn.BatchNorm2d(num_outputs), activation(),
        ]  # fmt: skip

    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), activation(inplace=True)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, NUM_CLASSES)]
    return nn.Sequential(*stem, *block(8, 12, 1), *block(12, 16, 2), *head)


class Reader(nn.Module):
    """Reads a sentence with a recurrent network, and classifies it by what is left at the end."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_TOKENS, 8, padding_idx=0)
        self.read = kind(8, 10, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(10, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        read, _ = self.read(self.embed(x))
        logits: Tensor = self.head(read[:, -1])
        return logits


class Encoder(nn.Module):
    """Torch's own transformer, over a whole sentence."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_TOKENS, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encode(self.embed(x)).mean(1))
        return logits


PLAIN_TASKS = {
    "mlp": Task(build=build_mlp, draw=draw_vectors(12)),
    "cnn": Task(build=build_cnn, draw=draw_images(12)),
    "resnet18": Task(
        build=lambda settings: ResNet18(width=4, activation=nn.ReLU),
        build_smooth=lambda settings: ResNet18(width=4, activation=nn.SiLU),
        draw=draw_images(16),
        lr=0.01,
        max_norm=0.3,
    ),
    "separable": Task(
        build=lambda settings: build_separable(nn.ReLU6),
        build_smooth=lambda settings: build_separable(nn.SiLU),
        draw=draw_images(16),
    ),
    "lstm": Task(build=lambda settings: Reader(nn.LSTM, dropout=0.2), draw=draw_sentences(7), lr=0.2, max_norm=0.5),
    "gru": Task(build=lambda settings: Reader(nn.GRU, dropout=0.0), draw=draw_sentences(7), lr=0.2, max_norm=0.5),
    "encoder": Task(build=lambda settings: Encoder(settings["dropout"]), draw=draw_sentences(7)),
}
