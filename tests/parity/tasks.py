"""What a model of the parity suite has to learn, and the hyperparameters of the lanes that learn it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

Settings: TypeAlias = Mapping[str, Any]
Draw: TypeAlias = Callable[[int, Generator], tuple[Tensor, Tensor]]

NUM_CLASSES = 5
NUM_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A model with data to learn. Everything in it is ordinary PyTorch that knows nothing of lanes."""

    build: Callable[[Settings], nn.Module]
    build_smooth: Callable[[Settings], nn.Module] | None = None
    """Builds the model for single precision, with activations that have no kinks, where it has thousands of them.

    Among so many there is always one whose input is zero but for rounding; on which side of the kink that falls is
    chance, also between two plain runs.
    """
    draw: Draw
    """Returns so many examples and their labels."""
    logits: Callable[[nn.Module, Tensor], Tensor] = lambda model, x: model(x)
    own_loss: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None
    """The loss that the model itself computes, in single precision, where it does."""
    lr: float = 0.05
    """The rate around which the lanes' rates lie; Adam's are a tenth of it."""
    max_norm: float | None = None
    """Where gradients are clipped, if they are."""

    def build_model(self, settings: Settings, dtype: torch.dtype) -> nn.Module:
        """Build the model in this precision."""
        build = self.build_smooth if self.build_smooth is not None and dtype == torch.float32 else self.build
        return build(settings).to(dtype)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, settings: Settings) -> Tensor:
        """Return the loss that a training step goes down."""
        if self.own_loss is not None and next(model.parameters()).dtype == torch.float32:
            return self.own_loss(model, x, y)
        logits = self.logits(model, x)
        smoothing = settings.get("smoothing", 0.0)
        return F.cross_entropy(logits.flatten(0, -2), y.flatten(), label_smoothing=smoothing)

    def data(self, num_examples: int, dtype: torch.dtype, seed: int) -> TensorDataset:
        """Draw a set of examples."""
        x, y = self.draw(num_examples, Generator().manual_seed(seed))
        return TensorDataset(x.to(dtype) if x.is_floating_point() else x, y)


def draw_vectors(size: int) -> Draw:
    """Vectors with a class each."""
    return lambda count, generator: (
        torch.randn(count, size, generator=generator),
        torch.randint(0, NUM_CLASSES, (count,), generator=generator),
    )


def draw_images(side: int, channels: int = 3) -> Draw:
    """Images with a class each."""
    return lambda count, generator: (
        torch.randn(count, channels, side, side, generator=generator),
        torch.randint(0, NUM_CLASSES, (count,), generator=generator),
    )


def draw_sentences(length: int) -> Draw:
    """Rows of tokens with a class each."""
    return lambda count, generator: (
        torch.randint(1, NUM_TOKENS, (count, length), generator=generator),
        torch.randint(0, NUM_CLASSES, (count,), generator=generator),
    )


def draw_continuations(length: int) -> Draw:
    """Rows of tokens whose labels are tokens too."""
    return lambda count, generator: (
        torch.randint(1, NUM_TOKENS, (count, length), generator=generator),
        torch.randint(1, NUM_TOKENS, (count, length), generator=generator),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the lanes are optimized: which class, and what goes into it from a lane's settings."""

    optimizer: Callable[[Settings], Any]
    options: Callable[[Settings], dict[str, Any]]
    lanes: Callable[[Task, torch.dtype], list[dict[str, Any]]]


RATES = (1.0, 0.4, 1.5, 0.2, 0.7, 1.2, 0.1)
DECAYS = (0.0, 1e-2, 1e-4, 5e-2, 1e-3, 0.0, 1e-1)
MOMENTA = (0.9, 0.5, 0.0, 0.8, 0.95, 0.7, 0.3)
BETAS = ((0.9, 0.999), (0.8, 0.99), (0.95, 0.9), (0.5, 0.999), (0.9, 0.95), (0.0, 0.99), (0.7, 0.9))
DROPOUTS = (0.1, 0.3, 0.2, 0.5, 0.4, 0.15, 0.25)
SMOOTHINGS = (0.0, 0.1, 0.05, 0.2, 0.15, 0.3, 0.01)
OPTIMIZERS = ("SGD", "AdamW", "RMSprop", "Adam", "Adagrad", "AdamW", "SGD")


def _lanes(scale: float, task: Task, **columns: Sequence[Any]) -> list[dict[str, Any]]:
    columns = {"lr": [task.lr * scale * rate for rate in RATES], "weight_decay": DECAYS, **columns}
    columns |= {"dropout": DROPOUTS, "smoothing": SMOOTHINGS}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _epsilon(dtype: torch.dtype) -> float:
    """Return what keeps Adam from blowing up rounding errors: gradients that should be zero are noise in practice."""
    return 1e-8 if dtype == torch.float64 else 1e-3


RECIPES = {
    "sgd": Recipe(
        optimizer=lambda settings: torch.optim.SGD,
        options=lambda settings: {
            "lr": settings["lr"],
            "momentum": settings["momentum"],
            "weight_decay": settings["weight_decay"],
        },
        lanes=lambda task, dtype: _lanes(1.0, task, momentum=MOMENTA, nesterov=[bool(item) for item in MOMENTA]),
    ),
    "adamw": Recipe(
        optimizer=lambda settings: torch.optim.AdamW,
        options=lambda settings: {
            "lr": settings["lr"],
            "betas": (settings["beta1"], settings["beta2"]),
            "eps": settings["eps"],
            "weight_decay": settings["weight_decay"],
        },
        lanes=lambda task, dtype: _lanes(
            0.1, task, beta1=[pair[0] for pair in BETAS], beta2=[pair[1] for pair in BETAS], eps=[_epsilon(dtype)] * 7
        ),
    ),
    "mixed": Recipe(
        optimizer=lambda settings: settings["optimizer"],
        options=lambda settings: {"lr": settings["lr"], "weight_decay": settings["weight_decay"]},
        lanes=lambda task, dtype: _lanes(0.1, task, optimizer=OPTIMIZERS),
    ),
}
