"""Studies that take much memory, each for a process of its own: `python -m tests.memory_lab NAME`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tests.execute.lab import StayingExecutor
from torch import nn

import headwater as hw
from headwater.errors import AllTrialsFailedError
from headwater.report import Callback
from headwater.train.memory import available_bytes
from headwater.trials import Report, Status

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
    """Return a study in this process, whose memory the scenarios limit and look at."""
    usual = {
        "metric": "loss",
        "storage": None,
        "executor": "inline",
        "lanes": 6,
        "packing": None,
        "space": {"lr": hw.grid(LR)},
    }
    return hw.Study(function, **{**usual, **settings})


ROOM = 120
"""One trial holds 24 MiB and as much again while it trains; six take more than this."""
GROUP_ROOM = 200
"""Three take less than this by far, six take more."""
LATE_ROOM = 340
"""Three take less than this by far, until the last epoch of the study below, in which each takes 128 MiB more."""
LR = [0.001 * (place + 1) for place in range(24)]


def follow_groups(function: Callable[[hw.Trial], Any], lanes: int) -> dict[str, Any]:
    residency = Residency()
    study(function, lanes=lanes, callbacks=[residency]).run()
    return {"held": residency.held[lanes - 1 :: lanes]}


def run_limited(room: int, **settings: Any) -> dict[str, Any]:
    """Run a study that may map so many MiB more than this process has once everything is loaded."""
    warm_up()
    limit = (read_status("VmSize") + room) * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return describe(study(**{"function": train, **settings}))


def run_in_cgroup(directory: str, room: int) -> dict[str, Any]:
    """Run a study whose control group, version 1, may take so many MiB more; where it takes more, Linux kills."""
    executor = StayingExecutor(hw.ProcessExecutor(1))
    study(train, space={"lr": hw.grid(LR[:2])}, lanes=2, executor=executor).run()
    usage = int(Path(directory, "memory.usage_in_bytes").read_text())
    Path(directory, "memory.limit_in_bytes").write_text(str(usage + room * MIB))
    free = available_bytes(torch.device("cpu"))
    assert free is not None
    return {"free": free // MIB, **describe(study(train, executor=executor))}


def warm_up() -> None:
    """Load what studies load."""
    study(train, space={"lr": hw.grid(LR[:2])}, lanes=2).run()


def describe(study: hw.Study) -> dict[str, Any]:
    sizes = Sizes()
    try:
        result = replace(study, callbacks=[sizes]).run()
    except AllTrialsFailedError as error:
        result = error.result
    return {
        "statuses": [trial.status for trial in result.trials],
        "losses": [report.metrics["loss"] for trial in result.trials for report in trial.history],
        "errors": [trial.error for trial in result.trials],
        "notes": sorted({note for trial in result.trials for note in trial.notes}),
        "sizes": sizes.sizes,
        "epochs": [int(epoch) for epoch in os.pread(EPOCHS, 1000, 0).split()],
    }


class Sizes(Callback):
    """Notes how many lanes report together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.sizes.append(len(reports))


EPOCHS = os.memfd_create("epochs")
"""A file with the epochs that were trained in this process, in order: a list would go back with a trial."""


def train_late(trial: hw.Trial) -> None:
    """Take much memory in the last epoch only."""
    model = trial.prepare_model(build())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    for epoch in trial.epochs(3):
        os.write(EPOCHS, f"{epoch} ".encode())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        optimizer.step()
        copies = [param * 2.0 for param in model.parameters() for _ in range(16 if epoch == 2 else 0)]
        del copies
        trial.report(loss=loss.item())


def train_careless(trial: hw.Trial) -> None:
    """Pass over batches that do not fit into memory."""
    model = trial.prepare_model(build())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    loss = torch.zeros(())
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        try:
            loss = F.cross_entropy(model(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
        except RuntimeError:
            optimizer.zero_grad()
        trial.report(loss=loss.item())


def train_wide(trial: hw.Trial) -> None:
    """Take more memory than there is at some widths."""
    width = trial.config["width"]
    train(trial, lambda: nn.Sequential(nn.Linear(WIDTH, width), nn.ReLU(), nn.Linear(width, 4)))


def train_hunted(here: int, trial: hw.Trial) -> None:
    """Be killed, as Linux does, where a process that is not here takes much more memory than it began with."""
    before = read_status("VmRSS")
    model = trial.prepare_model(build())
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        if read_status("VmRSS") - before > ROOM and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        trial.report(loss=loss.item())


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {
    "equal groups": lambda: follow_groups(train, 6),
    "circular models": lambda: follow_groups(train_circular, 1),
    "one by one": lambda: run_limited(ROOM, lanes=1),
    "circular one by one": lambda: run_limited(ROOM, lanes=1, function=train_circular),
    "groups": lambda: run_limited(GROUP_ROOM),
    "careless groups": lambda: run_limited(GROUP_ROOM, function=train_careless),
    "late": lambda storage: run_limited(LATE_ROOM, function=train_late, lanes=3, storage=storage, save_every=1),
    "wide": lambda: run_limited(
        ROOM, function=train_wide, space={"lr": hw.grid(LR[:3]), "width": hw.grid([64, 1 << 16])}
    ),
    "killed groups": lambda: describe(study(partial(train_hunted, os.getpid()), executor=hw.ProcessExecutor(1))),
    "cgroup": lambda directory: run_in_cgroup(directory, 2 * ROOM),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](*sys.argv[2:])))
