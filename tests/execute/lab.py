"""A small study, and the same one away from the process that runs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import headwater as hw
from headwater.trials import Result

torch.manual_seed(0)
INPUTS = torch.randn(96, 6)
TARGETS = (INPUTS @ torch.randn(6, 3)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)


def train(trial: hw.Trial, data: Dataset[Any] = DATA) -> None:
    config = trial.config
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)))
    loader = trial.prepare_data_loader(data, batch_size=config.get("batch_size", 32), shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=config["lr"], momentum=0.9)
    for _ in trial.epochs(9):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        trial.report(loss=total)


SPACE = {"lr": hw.loguniform(1e-3, 0.5)}
STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=4, max_epochs=9)


def away(study: hw.Study, num_workers: int = 2) -> hw.Study:
    return replace(study, executor=hw.ProcessExecutor(num_workers))


def assert_same(first: Result, second: Result) -> None:
    for mine, other in zip(first.trials, second.trials, strict=True):
        assert (mine.number, mine.status, mine.epochs) == (other.number, other.status, other.epochs)
        values = [report.metrics["loss"] for report in mine.history]
        assert values == pytest.approx([report.metrics["loss"] for report in other.history], rel=1e-4, nan_ok=True)


def count_reports(result: Result) -> int:
    return sum(len(trial.history) for trial in result.trials)


class SlowData(Dataset[tuple[Tensor, Tensor]]):
    """Takes longer to load than to train on, so that packs pay."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for _ in range(40):
            INPUTS.sum()
        return INPUTS[index], TARGETS[index]
