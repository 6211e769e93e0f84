"""Studies that take much memory, each for a process of its own: `python -m tests.memory_lab NAME`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import headwater as hw
from headwater.report import Callback
from headwater.trials import Status

MIB = 1 << 20
WIDTH = 1024
"""A matrix of this width takes 4 MiB."""
INPUTS = torch.linspace(-1, 1, 8 * WIDTH).view(8, WIDTH)
TARGETS = torch.arange(8) % 4


class Circular(nn.Sequential):
    """Holds itself, as users' models may."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.whole = [self]


def build(kind: type[nn.Sequential] = nn.Sequential) -> nn.Module:
    return kind(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))


def train(trial: hw.Trial, build: Callable[[], nn.Module] = build) -> None:
    model = trial.prepare_model(build())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.item())


def train_circular(trial: hw.Trial) -> None:
    train(trial, lambda: build(Circular))


class Residency(Callback):
    """Notes what the process holds whenever a trial has ended."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def on_end(self, number: int, status: Status) -> None:
        self.held.append(read_status("VmRSS"))


def read_status(name: str) -> int:
    """Return a size of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(name))


def study(function: Callable[[hw.Trial], Any], **settings: Any) -> hw.Study:  # Any: as hw.Study takes them
    usual = {"metric": "loss", "storage": None, "lanes": 6, "packing": None, "space": {"lr": hw.grid(LR)}}
    return hw.Study(function, **{**usual, **settings})


LR = [0.001 * (place + 1) for place in range(24)]


def follow_groups(function: Callable[[hw.Trial], Any], lanes: int) -> dict[str, Any]:
    residency = Residency()
    study(function, lanes=lanes, callbacks=[residency]).run()
    return {"held": residency.held[lanes - 1 :: lanes]}


SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {
    "equal groups": lambda: follow_groups(train, 6),
    "circular models": lambda: follow_groups(train_circular, 1),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]]()))
