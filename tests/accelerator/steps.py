"""Training steps on the simulated accelerator, and what each of them asks of it."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from headwater.fuse.strategies import Strategies
from headwater.train import Trial
from headwater.train.running import TrainingSetup, run_group
from headwater.trials import Decision, Lane, Outcome, Report, TrialGroup

NUM_EPOCHS = 4
COUNTERS = ("operators", "host_reads", "copies_to_device", "copies_from_device", "blocking_copies", "synchronizations")
EXTRAS = ("schedule", "clipping", "EMA", "GradScaler")


class Encoder(nn.Module):
    """A small Transformer that classifies sequences."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens)).mean(1))  # type: ignore[no-any-return]


def build_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def build_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "MLP": (build_mlp, torch.randn(128, 64)),
    "CNN": (build_cnn, torch.randn(128, 1, 8, 8)),
    "Transformer": (Encoder, torch.randint(32, (128, 12))),
}
LABELS = torch.randint(10, (128,))


def train_model(trial: Trial, name: str, optimizer_name: str, extras: Sequence[str]) -> None:
    build, inputs = MODELS[name]
    model = trial.prepare_model(build())
    average = copy.deepcopy(model).requires_grad_(False)
    loader = trial.prepare_data_loader(TensorDataset(inputs, LABELS), batch_size=32, shuffle=True)
    optimizers = prepare_optimizers(trial, model, optimizer_name)
    num_scheduled = len(optimizers) if "schedule" in extras else 0
    schedulers = [
        trial.prepare_scheduler(torch.optim.lr_scheduler.LinearLR, optimizer, total_iters=100)
        for optimizer in optimizers[:num_scheduled]
    ]
    scaler = torch.amp.GradScaler(trial.device.type, enabled="GradScaler" in extras)
    for _ in trial.epochs(NUM_EPOCHS):
        for x, y in loader:
            with torch.autocast(trial.device.type, torch.bfloat16, enabled="GradScaler" in extras):
                loss = F.cross_entropy(model(x), y)
            model.zero_grad()
            scaler.scale(loss).backward()
            if "clipping" in extras:
                for optimizer in optimizers:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            for scheduler in schedulers:
                scheduler.step()
            if "EMA" in extras:
                follow(average, model)
        trial.report(loss=loss)


def prepare_optimizers(trial: Trial, model: nn.Module, name: str) -> list[Any]:
    if name != "Muon":
        return [trial.prepare_optimizer(name, model, lr=trial.config["lr"])]
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    others = [weight for weight in model.parameters() if weight.dim() != 2]
    return [
        trial.prepare_optimizer(torch.optim.AdamW, others, lr=trial.config["lr"]),
        trial.prepare_optimizer(torch.optim.Muon, matrices, lr=trial.config["lr"]),
    ]


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module) -> None:
    for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
        slow.lerp_(fast, 0.01)


class StepCounter:
    """A control that reads the counters after each step, and lets every trial go on."""

    def __init__(self) -> None:
        self.epochs: list[list[dict[str, int]]] = [[]]
        self._sim = importlib.import_module("headwater_sim")

    def step(self, num_lanes: int) -> None:
        self.epochs[-1].append(self._sim.read_counters())

    def report(self, reports: Sequence[Report], capture: Any) -> list[Decision]:
        self.epochs.append([])
        return [Decision.CONTINUE] * len(reports)

    def hinder(self, obstacle: str) -> None:
        pass

    def expect(self, num_epochs: int) -> None:
        pass

    def finish(self, reports: Any, capture: Any, *, goes_on: bool) -> None:
        pass

    def most(self) -> dict[str, int]:
        """Return the most that any step of the last epoch has counted, from one optimizer step to the next."""
        steps = self.epochs[-2]
        return {name: max(after[name] - before[name] for before, after in pairwise(steps)) for name in COUNTERS}


def count_step(name: str, optimizer: str, num_lanes: int, extras: Sequence[str] = ()) -> dict[str, int]:
    """Train so many trials, as lanes or a single one in plain PyTorch, and return the counters of a step."""
    setup = TrainingSetup(
        lambda trial: train_model(trial, name, optimizer, extras),
        device=torch.device("sim:0"),
        strategies=Strategies(preset=("product", "side by side", "batched")),
        always_fuse=num_lanes > 1,
    )
    lanes = tuple(Lane(number=number, config={"lr": 0.01 * (number + 1)}, seed=0) for number in range(num_lanes))
    control = StepCounter()
    ending = run_group(setup, TrialGroup(lanes=lanes), control)
    assert ending.outcome is Outcome.DONE, ending.error or ending.question
    return control.most()
