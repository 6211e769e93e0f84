"""The studies that faults befall: small, and computed in float64, so that groups of other sizes round alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

import headwater as hw
from headwater.execute import Executor
from headwater.search import ASHA, PBT

torch.manual_seed(0)
INPUTS = torch.randn(24, 6, dtype=torch.float64)
TARGETS = (INPUTS @ torch.randn(6, 3, dtype=torch.float64)).argmax(1)
NUM_EPOCHS = 4

SPACE = {"lr": hw.loguniform(1e-2, 0.5)}
UNLIKE = {"batch_size": hw.choice([6, 8, 12]), "units": hw.choice([8, 10])}
SEARCHES: dict[str, dict[str, Any]] = {  # Any: settings of a study
    "random": {"search": "random"},
    "asha": {"search": ASHA(reduction=2)},
    "pbt": {"search": PBT(interval=1, population=3, max_epochs=NUM_EPOCHS)},
    "surrogate": {"surrogate": hw.Surrogate(scale=2, min_width=2, num_checked=3, eager=False)},
    "packs": {"search": "random", "packing": "random", "space": {**SPACE, **UNLIKE}},
    "ranks": {
        "surrogate": hw.Surrogate(scale=2, min_width=2, num_checked=0, eager=False, spread="ranks", on_drift=None)
    },
}
"""By name; "packs" has models that no group can hold, "ranks" a trial that trains on all devices."""
NUM_TRIALS = {"random": 5, "asha": 7, "pbt": 6, "surrogate": 4, "packs": 10, "ranks": 2}
EXECUTORS = ("inline", "processes", "ray")
SAVE_EVERY = 1
"""The checkpoint interval: so many epochs."""


def build_study(
    search: str,
    executor: str | Executor,
    storage: str | Path | None,
    on_start: Callable[[], None] = lambda: None,
    **settings: Any,
) -> hw.Study:
    """Return a study of this search that is recorded there; `on_start` is called where its function begins."""

    def train(trial: hw.Trial) -> None:
        on_start()
        train_model(trial, TensorDataset(INPUTS, TARGETS))

    usual = {"train": train, "space": SPACE, "packing": None}
    return hw.Study(
        metric="loss",
        storage=storage,
        name="one",
        max_epochs=NUM_EPOCHS,
        save_every=SAVE_EVERY,
        lanes=3,
        executor=hw.ProcessExecutor(2) if executor == "processes" else executor,
        **{**usual, **SEARCHES[search], **settings},
    )


def train_model(trial: hw.Trial, data: Any) -> None:  # Any: a data set
    units, batch_size = trial.config.get("units", 8), trial.config.get("batch_size", 12)
    model = trial.prepare_model(
        nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, units), nn.Tanh(), nn.Linear(units, 3)
        ).double()
    )
    is_flowing = isinstance(data, IterableDataset)
    loader = trial.prepare_data_loader(
        data, batch_size=batch_size, **({"num_workers": 1} if is_flowing else {"shuffle": True})
    )
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=0.9)
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
