"""A small study, the same one away from the process that runs it, and what tests see of executors."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import headwater as hw
from headwater.conduct.protocol import Conductor
from headwater.execute import Executor
from headwater.report import Callback
from headwater.trials import Device, Report, Result

torch.manual_seed(0)
INPUTS = torch.randn(96, 6, dtype=torch.float64)
TARGETS = (INPUTS @ torch.randn(6, 3, dtype=torch.float64)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)
NUM_EPOCHS = 9


def train(trial: hw.Trial, data: Dataset[Any] = DATA) -> None:
    config = trial.config
    layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    model = trial.prepare_model(layers.double())
    loader = trial.prepare_data_loader(data, batch_size=config.get("batch_size", 32), shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=config["lr"], momentum=0.9)
    for _ in trial.epochs(NUM_EPOCHS):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        trial.report(loss=total)


SPACE = {"lr": hw.loguniform(1e-3, 0.5)}
STUDY = hw.Study(
    train, space=SPACE, metric="loss", storage=None, lanes=4, packing=None, max_epochs=NUM_EPOCHS, executor="inline"
)


class StayingExecutor:
    """An executor whose processes stay from one study to the next, so that tests need not wait for them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def list_devices(self) -> Sequence[Device]:
        return self._executor.list_devices()

    def run(self, conductor: Conductor) -> None:
        self._executor.run(conductor)

    def close(self) -> None:
        pass

    def end(self) -> None:
        """Let the processes go."""
        self._executor.close()


def away(study: hw.Study, executor: Executor) -> hw.Study:
    return replace(study, executor=executor)


def assert_same(first: Result, second: Result, tolerance: float = 1e-9) -> None:
    for mine, other in zip(first.trials, second.trials, strict=True):
        assert (mine.number, mine.status, mine.epochs) == (other.number, other.status, other.epochs)
        values, others = ([report.metrics["loss"] for report in trial.history] for trial in (mine, other))
        assert values == pytest.approx(others, rel=tolerance, abs=tolerance, nan_ok=True)


def count_reports(result: Result) -> int:
    return sum(len(trial.history) for trial in result.trials)


def list_children() -> set[int]:
    """Return the processes that this one has started and that have not ended."""
    children = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == os.getpid() and state != "Z":
            children.add(int(path.parent.name))
    return children


class Notes(Callback):
    """Keeps what was reported together."""

    def __init__(self) -> None:
        self.reports: list[Sequence[Report]] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.reports.append(reports)


class StopAt(Callback):
    """Asks to stop as Ctrl-C does, after so many reports."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class SlowData(Dataset[tuple[Tensor, Tensor]]):
    """Takes longer to load than to train on, so that packs pay."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for _ in range(40):
            INPUTS.sum()
        return INPUTS[index], TARGETS[index]
