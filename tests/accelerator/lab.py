"""A study that is the same on every device: it draws no random numbers there, and computes in double precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.trials import Result

NUM_EPOCHS = 4
INPUTS = torch.randn(96, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(INPUTS, INPUTS[:, :3].argmax(1))


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double())
    loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
    betas = (trial.config["b"], 0.99)
    optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"], betas=betas)
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.StepLR, optimizer, step_size=1, gamma=0.9)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        trial.report(loss=total)


STUDY = hw.Study(
    train,
    space={"lr": hw.loguniform(1e-3, 0.1), "b": hw.uniform(0.5, 0.95)},
    metric="loss",
    storage=None,
    lanes=4,
    packing=None,
    max_epochs=NUM_EPOCHS,
    executor="inline",
)


def losses(result: Result) -> list[list[float]]:
    """Return what each trial has reported."""
    assert [trial.error for trial in result.trials] == [None] * len(result.trials)
    return [[report.metrics["loss"] for report in trial.history] for trial in result.trials]
