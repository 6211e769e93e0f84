"""Biases before a BatchNorm, which only rounding moves: the study says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.train.lab import run
from torch import nn

import headwater as hw
from headwater.report import Silence
from headwater.train import Trial

DICE = torch.Generator().manual_seed(0)
X = torch.randn(32, 3, 8, 8, generator=DICE)
Y = torch.randint(0, 4, (32,), generator=DICE)
CONFIGS = [{"lr": 0.01}, {"lr": 0.02}]


def build(bias: bool = True, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, bias=bias), norm(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=bias), norm(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def training(kind: Any = torch.optim.AdamW, **options: Any) -> Callable[[Trial], None]:
    def train(trial: Trial) -> None:
        torch.manual_seed(0)
        model = trial.prepare_model(build(**options))
        optimizer = trial.prepare_optimizer(kind, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item())

    return train


@pytest.mark.parametrize("configs", [CONFIGS, CONFIGS[:1]])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.RMSprop])
def test_a_bias_before_a_batch_norm_is_named(configs: list[dict[str, float]], kind: Any) -> None:
    (note,) = run(training(kind), configs, always_fuse=len(configs) > 1).ending.notes
    assert note.startswith("the biases of `0`, `3` have no effect before BatchNorm")
    assert "bias=False" in note


@pytest.mark.parametrize(
    "train", [training(bias=False), training(norm=nn.InstanceNorm2d), training(norm=nn.Identity), training("SGD")]
)
def test_nothing_is_said_where_no_bias_is_idle_or_steps_are_as_small_as_gradients(
    train: Callable[[Trial], None],
) -> None:
    assert run(train, CONFIGS).ending.notes == ()


class Told(Silence):
    """Keeps the notes of a study."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, text: str) -> None:
        self.texts.append(text)


def test_a_study_says_it_once() -> None:
    told = Told()
    study = hw.Study(training(), space={"lr": hw.loguniform(1e-3, 0.1)}, metric="loss", storage=None, lanes=2)
    study.run(num_trials=6, watcher=told)
    assert sum("no effect before BatchNorm" in text for text in told.texts) == 1
