"""The target of a study with surrogates is what a script without Headwater trains with the winning configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import headwater as hw

SEED, NUM_EPOCHS, BATCH_SIZE = 0, 2, 8
_GENERATOR = torch.Generator().manual_seed(0)
VECTORS = torch.randn(48, 12, generator=_GENERATOR, dtype=torch.float64)
IMAGES = torch.randn(32, 3, 8, 8, generator=_GENERATOR, dtype=torch.float64)
TEXTS = torch.randint(0, 20, (32, 9), generator=_GENERATOR)


class Residual(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + x)


class Transformer(nn.Module):
    """A small language model of torch's own layers."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, width), nn.Parameter(0.02 * torch.randn(8, width))
        self.layer = nn.TransformerEncoderLayer(width, 8, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        answer: Tensor = self.head(self.layer(self.tokens(x) + self.places, mask, is_causal=True))
        return answer


def build_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def build_resnet() -> nn.Module:
    stem = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
    return nn.Sequential(*stem, Residual(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))


def build_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=64, n_head=8, n_layer=1)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def answer_of(output: Any) -> Tensor:
    """What a model answers, of Hugging Face or not."""
    tensor: Tensor = getattr(output, "logits", output)
    return tensor.flatten(0, -2)


@dataclass(frozen=True)
class Script:
    """A training in plain PyTorch, and the same for Headwater."""

    build: Callable[[], nn.Module]
    data: TensorDataset
    optimizer: Callable[..., Optimizer]
    settings: Mapping[str, Any]

    def run(self, config: Mapping[str, Any]) -> list[float]:
        """Train as anybody would, and return the loss after each epoch."""
        torch.manual_seed(SEED)
        model = self.build().double()
        loader = DataLoader(self.data, batch_size=BATCH_SIZE)
        optimizer = self.optimizer(model.parameters(), lr=config["lr"], **self.settings)
        scheduler = CosineAnnealingLR(optimizer, T_max=NUM_EPOCHS)
        losses = []
        for _ in range(NUM_EPOCHS):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(answer_of(model(x)), y.flatten())
                loss.backward()
                optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        return losses

    def run_trial(self, trial: hw.Trial) -> None:
        """Train as a study wants it."""
        model = trial.prepare_model(self.build().double())
        loader = trial.prepare_data_loader(self.data, batch_size=BATCH_SIZE)
        optimizer = trial.prepare_optimizer(self.optimizer, model, lr=trial.config["lr"], **self.settings)
        scheduler = trial.prepare_scheduler(CosineAnnealingLR, optimizer, T_max=NUM_EPOCHS)
        for _ in trial.epochs(NUM_EPOCHS):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(answer_of(model(x)), y.flatten())
                loss.backward()
                optimizer.step()
            scheduler.step()
            trial.report(loss=loss.item())


VERSES = TensorDataset(TEXTS[:, :-1], TEXTS[:, 1:])
SCRIPTS = [
    pytest.param(Script(build_mlp, TensorDataset(VECTORS, VECTORS[:, :4].argmax(1)), SGD, {"momentum": 0.9}), id="MLP"),
    pytest.param(
        Script(build_resnet, TensorDataset(IMAGES, IMAGES[:, 0, 0, :4].argmax(1)), SGD, {"weight_decay": 1e-3}),
        id="ResNet",
    ),
    pytest.param(Script(Transformer, VERSES, AdamW, {"weight_decay": 0.1}), id="Transformer"),
    pytest.param(Script(build_gpt2, VERSES, AdamW, {"betas": (0.9, 0.95)}), id="Hugging Face GPT-2"),
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_winning_configuration_gives_the_targets_metrics_in_a_plain_script(script: Script) -> None:
    torch.set_num_threads(1)
    study = hw.Study(
        partial(script.run_trial),
        space={"lr": hw.loguniform(1e-3, 1e-1)},
        metric="loss",
        storage=None,
        lanes=2,
        seed=SEED,
        compile=False,
        surrogate=hw.Surrogate(scale=4, min_width=4, num_checked=0, eager=False),
    )
    result = study.run(num_trials=2)
    assert result.target is not None
    assert [report.metrics["loss"] for report in result.target.history] == script.run(result.best.config)
