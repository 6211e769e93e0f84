"""Three usual models in training functions, by which `headwater doctor --measure` shows what lanes gain on a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor, nn

from headwater.train.machine import count_threads, describe_device, use_one_thread
from headwater.train.profiling import BUDGET_SHARE, profile_lanes
from headwater.train.running import TrainingSetup, choose_device
from headwater.train.trial import Trial
from headwater.trials import Deadline, Lane, Profile

NUM_CLASSES = 10
BATCH_SIZE = 64
MOST_LANES = 64
MODEL_S = 20.0
"""After so many seconds no larger group of a model is tried."""
NUM_STEPS = 10_000
"""More steps in an epoch than are measured."""

Function: TypeAlias = Callable[[Trial], None]


class SmallTransformer(nn.Module):
    """Two encoder layers on sequences of tokens, and a classifier of their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, NUM_CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the classes."""
        scores: Tensor = self.head(self.encoder(self.embedding(tokens)).mean(1))
        return scores


def train_mlp(trial: Trial) -> None:
    """Train a perceptron with two hidden layers."""
    layers = (nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, NUM_CLASSES))
    _train(trial, nn.Sequential(*layers), torch.randn(BATCH_SIZE, 64))


def train_cnn(trial: Trial) -> None:
    """Train a network of two convolutions on images of 16 by 16 pixels."""
    blocks = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    blocks += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(32 * 4 * 4, NUM_CLASSES))
    _train(trial, model, torch.randn(BATCH_SIZE, 3, 16, 16))


def train_transformer(trial: Trial) -> None:
    """Train a small Transformer on sequences of 32 tokens."""
    _train(trial, SmallTransformer(), torch.randint(256, (BATCH_SIZE, 32)))


SAMPLES: Mapping[str, Function] = MappingProxyType(
    {"MLP": train_mlp, "CNN": train_cnn, "Transformer": train_transformer}
)


def _train(trial: Trial, model: nn.Module, inputs: Tensor) -> None:
    model = trial.prepare_model(model)
    optimizer = trial.prepare_optimizer("AdamW", model, lr=trial.config["lr"])
    inputs, labels = inputs.to(trial.device), torch.randint(NUM_CLASSES, (BATCH_SIZE,)).to(trial.device)
    for _ in trial.epochs(1):
        for _ in range(NUM_STEPS):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)


def name_measured_device() -> str:
    """Return the device that `measure_samples` trains on, with the number of torch's threads where it is the CPU."""
    return describe_device(choose_device("auto"), count_threads())


def measure_samples() -> Iterator[tuple[str, Profile]]:
    """Profile groups of 1, 2, 4, … lanes of each model as a study does, and yield the names and the profiles."""
    use_one_thread()  # as workers do; threads that wait for one another would make a busy machine look slow one by one
    lanes = [Lane(number=number, config={"lr": 1e-4 * (number + 1)}, seed=0) for number in range(MOST_LANES)]
    for name, function in SAMPLES.items():
        deadline = Deadline.start(MODEL_S / BUDGET_SHARE)
        setup = TrainingSetup(function, device=choose_device("auto"), deadline=deadline)
        yield name, profile_lanes(setup, lanes, share=math.inf)[0]
