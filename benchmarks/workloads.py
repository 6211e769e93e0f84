"""What the end-to-end benchmark tunes: models, data, and how each is trained without Headwater."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import data
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MAX_EPOCHS = 9
REDUCTION = 3
NUM_WORKERS = 2
NUM_VALID = 512
NUM_HELD_OUT = 2048
LENGTH = 32
"""Characters in one example of the Transformer."""

Config = Mapping[str, float]
Examples = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""Inputs and answers to train on, those to choose trials by, and those that nobody chooses by."""


def mlp() -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), *hidden, nn.Linear(1024, 10))


class Block(nn.Module):
    """A block of a Transformer, with its norms before the branches."""

    def __init__(self, width: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(84, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, 64) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 84)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Basic(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet18() -> nn.Module:
    """ResNet-18 with the small first layer that CIFAR-10 asks for."""
    widths = (64, 64, 128, 256, 512)
    blocks = [
        block
        for stage, (inputs, outputs) in enumerate(pairwise(widths))
        for block in (Basic(inputs, outputs, 1 + (stage > 0)), Basic(outputs, outputs, 1))
    ]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def thumbnails(num_examples: int) -> Examples:
    """Images of half the height and width."""
    images = data.cifar10()
    valid, held_out = slice(NUM_VALID // 4), slice(NUM_VALID // 4, NUM_VALID // 4 + NUM_HELD_OUT // 8)
    return (
        F.avg_pool2d(images.train_x[:num_examples], 2), images.train_y[:num_examples].clone(),
        F.avg_pool2d(images.valid_x[valid], 2), images.valid_y[valid].clone(),
        F.avg_pool2d(images.valid_x[held_out], 2), images.valid_y[held_out].clone(),
    )  # fmt: skip


def clothes(num_examples: int) -> Examples:
    images = data.fashion_mnist()
    held_out = slice(NUM_VALID, NUM_VALID + NUM_HELD_OUT)
    return (
        images.train_x[:num_examples].clone(), images.train_y[:num_examples].clone(),
        images.valid_x[:NUM_VALID].clone(), images.valid_y[:NUM_VALID].clone(),
        images.valid_x[held_out].clone(), images.valid_y[held_out].clone(),
    )  # fmt: skip


def verses(num_examples: int) -> Examples:
    """Pieces from all over the works, and what follows each character."""
    text = data.shakespeare()
    num_valid, num_held_out = NUM_VALID // 8, NUM_HELD_OUT // 16
    x, y = _pieces(text.valid.long(), num_valid + num_held_out)
    return *_pieces(text.train.long(), num_examples), x[:num_valid], y[:num_valid], x[num_valid:], y[num_valid:]


def _pieces(text: Tensor, count: int) -> tuple[Tensor, Tensor]:
    starts = torch.randperm((len(text) - 1) // LENGTH, generator=torch.Generator().manual_seed(0))[:count] * LENGTH
    places = starts[:, None] + torch.arange(LENGTH + 1)
    return text[places[:, :-1]], text[places[:, 1:]]


@dataclass(frozen=True, kw_only=True)
class Workload:
    title: str
    build: Callable[[], nn.Module]
    load: Callable[[int], Examples]
    optimizer: type[torch.optim.Optimizer]
    logarithmic: Mapping[str, tuple[float, float]]
    """What is drawn evenly by its logarithm, from where to where."""
    even: Mapping[str, tuple[float, float]]
    num_examples: int
    batch_size: int
    steps_per_epoch: int
    """What counts as an epoch here: so many batches of the examples, drawn anew each time."""
    scale: int
    """At which part of the width Headwater searches, unless told otherwise."""


WORKLOADS = {
    "MLP": Workload(
        title="MLP 4 x 1024, Fashion-MNIST, SGD", build=mlp, load=clothes, optimizer=torch.optim.SGD,
        logarithmic={"lr": (1e-3, 0.3)}, even={"momentum": (0.5, 0.99)},
        num_examples=32768, batch_size=64, steps_per_epoch=48, scale=64,
    ),
    "Transformer": Workload(
        title="Transformer d = 512, Shakespeare, AdamW", build=Transformer, load=verses, optimizer=torch.optim.AdamW,
        logarithmic={"lr": (1e-4, 1e-2), "weight_decay": (1e-3, 1.0)}, even={},
        num_examples=4096, batch_size=8, steps_per_epoch=4, scale=16,
    ),
    "ResNet": Workload(
        title="ResNet-18, CIFAR-10 at 16 x 16, SGD", build=resnet18, load=thumbnails, optimizer=torch.optim.SGD,
        logarithmic={"lr": (1e-3, 0.3)}, even={"momentum": (0.5, 0.99)},
        num_examples=4096, batch_size=16, steps_per_epoch=9, scale=8,
    ),
}  # fmt: skip


class Scores(NamedTuple):
    """How good a model is after an epoch; what nobody chooses by is NaN unless it was asked for."""

    loss: float
    """On the examples that trials are chosen by."""
    held_out: float = math.nan
    """The loss on examples that nothing was chosen by,"""
    accuracy: float = math.nan
    """and the share of them that is right."""


def score(model: nn.Module, examples: Examples, *, tests: bool) -> Scores:
    """Evaluate a model, on the held-out examples only if it is to be tested."""
    _, _, valid_x, valid_y, held_out_x, held_out_y = examples
    with torch.no_grad():
        loss = F.cross_entropy(model(valid_x), valid_y.flatten())
        if not tests:
            return Scores(loss)
        answers = model(held_out_x)
        is_right = (answers.argmax(1) == held_out_y.flatten()).float()
        return Scores(loss, F.cross_entropy(answers, held_out_y.flatten()), is_right.mean())


def train_plainly(
    work: Workload, examples: Examples, config: Config, *, tests_always: bool = False
) -> Iterator[Scores]:
    """Train as one would without any tuner, and give the scores after each epoch; the last is tested, or each."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_x, train_y, *_ = examples
    model = work.build()
    optimizer = work.optimizer(model.parameters(), **config)
    for epoch in range(1, MAX_EPOCHS + 1):
        order = torch.randperm(len(train_x))[: work.steps_per_epoch * work.batch_size]
        for rows in order.split(work.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(train_x[rows]), train_y[rows].flatten()).backward()
            optimizer.step()
        yield Scores(*map(float, score(model, examples, tests=tests_always or epoch == MAX_EPOCHS)))
