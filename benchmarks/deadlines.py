"""Whether a time budget is kept: by how much studies of six kinds end after budgets of 10, 20 and 60 seconds.

Run `python benchmarks/deadlines.py` (about nine minutes, on two cores), or with `--kinds lanes --budgets 10` for a part
of it. Every study has a process of its own. The table goes to standard output as Markdown; the committed one is in
benchmarks/deadlines.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import data
import torch
import torch.nn.functional as F
from measuring import heading
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.report import Silence
from headwater.store import open_store, read_shown

TOLERANCE = 0.05
"""So much of the budget may pass besides the longest epoch."""
MANY = 10**6
"""More trials than any budget has time for."""
NUM_EPOCHS = 9
BATCH_SIZE = 64

Train = Callable[[hw.Trial], None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of study."""

    title: str
    width: int
    """Of the MLP's three hidden layers."""
    num_steps: int
    """How many an epoch has, at the batch size below."""
    options: Mapping[str, Any]
    space: Mapping[str, Any]
    is_apart: bool = False
    """Whether the function does what lanes cannot do together."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one run."""

    seconds: float
    """How long it took from the call of `run` to its answer."""
    first_s: float
    """How long it took until the first epoch began."""
    longest_s: float
    """The longest epoch of all trials, from its first step to its report."""
    num_epochs: int
    best: float
    has_target: bool | None
    """Whether a target was trained to its end; None where there is none to train."""
    target_s: float | None
    """How long the target takes in a plain script."""
    said: str
    load: float


RATES = {"lr": hw.loguniform(1e-3, 0.3), "momentum": hw.uniform(0.5, 0.99)}
KINDS = {
    "lanes": Kind(title="random search, lanes", width=128, num_steps=48, options={}, space=RATES),
    "asha": Kind(
        title="ASHA, two processes", width=256, num_steps=48, space=RATES,
        options={"search": "asha", "executor": "processes"},
    ),
    "surrogate": Kind(
        title="surrogate at 1/8, target of some 5 s", width=1024, num_steps=20, space=RATES,
        options={"surrogate": 8, "executor": "processes"},
    ),
    "large": Kind(
        title="surrogate at 1/8, target of some 15 s", width=2048, num_steps=16, space=RATES,
        options={"surrogate": 8, "executor": "processes"},
    ),
    "packs": Kind(
        title="packs of five batch sizes", width=256, num_steps=48,
        space={**RATES, "batch_size": hw.choice([16, 32, 64, 96, 128])}, options={"packing": "batch_size"},
    ),
    "apart": Kind(
        title="no lanes, long epochs, two processes", width=1024, num_steps=96, space=RATES,
        options={"executor": "processes"}, is_apart=True,
    ),
}  # fmt: skip


def build(width: int) -> nn.Module:
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def load(kind: Kind) -> tuple[TensorDataset, Tensor, Tensor]:
    images, count = data.fashion_mnist(), kind.num_steps * BATCH_SIZE
    dataset = TensorDataset(images.train_x[:count].clone(), images.train_y[:count].clone())
    return dataset, images.valid_x[:512].clone(), images.valid_y[:512].clone()


def training_function(kind: Kind) -> Train:
    """Return a function that reports how long each of its epochs took."""
    dataset, valid_x, valid_y = load(kind)

    def train(trial: hw.Trial) -> None:
        config = dict(trial.config)
        model = trial.prepare_model(build(kind.width))
        loader = trial.prepare_data_loader(dataset, batch_size=config.pop("batch_size", BATCH_SIZE), shuffle=True)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, **config)
        for _ in trial.epochs(NUM_EPOCHS):
            begin = time.perf_counter()
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                if kind.is_apart and loss.detach().numpy() > 1e6:
                    break
            with torch.no_grad():
                loss = F.cross_entropy(model(valid_x), valid_y)
            trial.report(loss=loss, began=begin, epoch_s=time.perf_counter() - begin)

    return train


def time_plainly(kind: Kind) -> float:
    """Return how long the target's steps take in a plain script, by some of them."""
    dataset, _, _ = load(kind)
    model = build(kind.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = dataset[:BATCH_SIZE]
    begins = []
    for _ in range(11):
        begins.append(time.perf_counter())
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return (begins[-1] - begins[1]) / 9 * kind.num_steps * NUM_EPOCHS


def run(kind: Kind, budget_s: float) -> Outcome:
    train = training_function(kind)
    has_surrogate = "surrogate" in kind.options
    target_s = time_plainly(kind) if has_surrogate else None
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            train, space=kind.space, metric="loss", max_epochs=NUM_EPOCHS, storage=Path(folder) / "record.db",
            name="study", **kind.options,
        )  # fmt: skip
        begin = time.perf_counter()
        result = study.run(num_trials=MANY, time_budget=budget_s, watcher=Silence())
        seconds = time.perf_counter() - begin
        epochs = list_epochs(Path(folder) / "record.db")
        first_s = min(epoch["began"] for epoch in epochs) - begin
        longest_s = max(epoch["epoch_s"] for epoch in epochs)
    return Outcome(
        seconds=seconds,
        first_s=first_s,
        longest_s=longest_s,
        num_epochs=len(epochs),
        best=result.best.value("loss"),
        has_target=(result.target is not None and result.target.epochs == NUM_EPOCHS) if has_surrogate else None,
        target_s=target_s,
        said=result.ended_early or "",
        load=load_before,
    )


def list_epochs(path: Path) -> list[Mapping[str, float]]:
    """Return what was reported of all epochs of all stages; the clock is the same in all processes of a machine."""
    with open_store(path) as store:
        trials = [trial for info in store.studies() for trial in store.trials(info.id, read_shown)]
    return [report.metrics for trial in trials for report in trial.history]


def run_apart(name: str, budget_s: float) -> Outcome:
    """Run in a process of its own."""
    command = [sys.executable, __file__, "--request", json.dumps([name, budget_s])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    outcome = Outcome(**json.loads(done.stdout.splitlines()[-1]))
    print(f"--- {name}, {budget_s:g} s: {outcome}", file=sys.stderr, flush=True)
    return outcome


def show_row(kind: Kind, budget_s: float, outcome: Outcome) -> str:
    over_s = outcome.seconds - budget_s
    allowed_s = outcome.longest_s + TOLERANCE * budget_s
    return (
        f"| {kind.title} | {budget_s:g} | {outcome.first_s:.2f} | {outcome.seconds:.2f} | {over_s:+.2f} "
        f"| {outcome.longest_s:.2f} "
        f"| {allowed_s:.2f} | {'yes' if over_s <= allowed_s else '**no**'} | {say_target(budget_s, outcome)} "
        f"| {outcome.num_epochs} | {outcome.best:.3f} | {outcome.load:.1f} |"
    )


def say_target(budget_s: float, outcome: Outcome) -> str:
    if outcome.target_s is None:
        return "-"
    fits = "fits" if outcome.target_s <= budget_s else "does not fit"
    return f"{'trained' if outcome.has_target else 'not trained'}; {outcome.target_s:.1f} s alone: {fits}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--budgets", nargs="*", type=float, default=[10.0, 20.0, 60.0])
    parser.add_argument("--request", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.request:
        name, budget_s = json.loads(options.request)
        print(json.dumps(asdict(run(KINDS[name], budget_s))))
        return
    print(heading("Time budgets: when studies end"))
    columns = [
        "study",
        "budget s",
        "first epoch after",
        "ended after",
        "over by",
        "longest epoch",
        "allowed",
        "kept",
        "target",
    ]
    columns += ["epochs trained", "best loss", "load before"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name in options.kinds:
        for budget_s in options.budgets:
            print(show_row(KINDS[name], budget_s, run_apart(name, budget_s)), flush=True)


if __name__ == "__main__":
    main()
