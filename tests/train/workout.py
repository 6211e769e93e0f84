"""A training function with everything in it that must survive a pause: shuffling, dropout, BatchNorm, a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, nn
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from headwater.train import Trial

NUM_EPOCHS = 5
NUM_BATCHES = 3

_DRAW = Generator().manual_seed(1)
DATA = TensorDataset(
    torch.randn(24, 6, generator=_DRAW, dtype=torch.float64), torch.randint(0, 3, (24,), generator=_DRAW)
)

CONFIGS: dict[int, dict[str, Any]] = {
    number: {
        "lr": 0.02 * (number + 1), "momentum": 0.5 + 0.05 * number, "beta": 0.8 + 0.02 * number,
        "decay": 0.01 * number, "gamma": 0.5 + 0.05 * number, "dropout": 0.1 + 0.05 * number,
    }
    for number in range(6)
}  # fmt: skip


def build_net(config: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(8, 3)
    ).double()  # fmt: skip


def build_sgd(trial: Trial, model: nn.Module) -> Any:
    config = trial.config
    options = {"lr": config["lr"], "momentum": config["momentum"], "weight_decay": config["decay"]}
    return trial.prepare_optimizer(torch.optim.SGD, model, **options)


def build_adamw(trial: Trial, model: nn.Module) -> Any:
    config = trial.config
    options = {"lr": config["lr"] / 10, "betas": (config["beta"], 0.99), "weight_decay": config["decay"]}
    return trial.prepare_optimizer(torch.optim.AdamW, model, **options)


def build_mixed(trial: Trial, model: nn.Module) -> Any:
    return trial.prepare_optimizer(trial.config["optimizer"], model, lr=trial.config["lr"] / 10)


OPTIMIZERS: dict[str, Callable[[Trial, nn.Module], Any]] = {"sgd": build_sgd, "adamw": build_adamw}


def build_steps(trial: Trial, optimizer: Any) -> Any:
    return trial.prepare_scheduler(lr_scheduler.StepLR, optimizer, step_size=2, gamma=trial.config["gamma"])


def build_one_cycle(trial: Trial, optimizer: Any) -> Any:
    rate = trial.config["lr"]
    options = {"total_steps": NUM_EPOCHS * NUM_BATCHES, "max_lr": rate, "base_momentum": trial.config["gamma"]}
    return trial.prepare_scheduler(lr_scheduler.OneCycleLR, optimizer, **options)


def build_plateau(trial: Trial, optimizer: Any) -> Any:
    options = {"factor": trial.config["gamma"], "patience": 0, "threshold": 0.05}
    return trial.prepare_scheduler(lr_scheduler.ReduceLROnPlateau, optimizer, **options)


SCHEDULES: dict[str, Callable[[Trial, Any], Any]] = {
    "step": build_steps,
    "one-cycle": build_one_cycle,
    "plateau": build_plateau,
}


def workout(optimizer: str = "sgd", schedule: str = "step") -> Callable[[Trial], None]:
    """Return a function that trains `NUM_EPOCHS` epochs of `NUM_BATCHES` batches."""

    def train(trial: Trial) -> None:
        model = trial.prepare_model(build_net(trial.config))
        loader = trial.prepare_data_loader(DATA, batch_size=8, shuffle=True)
        stepper = {**OPTIMIZERS, "mixed": build_mixed}[optimizer](trial, model)
        scheduler = SCHEDULES[schedule](trial, stepper)
        parameters = list(model.parameters())
        for _ in trial.epochs(NUM_EPOCHS):
            model.train()
            total: Any = 0.0
            for x, y in loader:
                stepper.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                stepper.step()
                total += loss.item()
                if schedule == "one-cycle":
                    scheduler.step()
            if schedule == "plateau":
                scheduler.step(total)
            elif schedule == "step":
                scheduler.step()
            trial.report(loss=total / len(loader), lr=stepper.param_groups[0]["lr"])

    return train
