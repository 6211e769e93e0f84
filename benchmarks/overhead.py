"""What Headwater itself costs: per trial that only reports, and per report at 128 lanes, with the SQLite store.

Run `python benchmarks/overhead.py`. Optuna's own loop on SQLite runs in turns with it, for comparison.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import optuna
import torch
from measuring import heading

import headwater as hw
from headwater.search import ASHA, Build

Run = Callable[[Path], int]
"""Runs with its record in a folder, and returns how many trials or reports there were."""

NUM_LANES = 128
NUM_EPOCHS = 20
NUM_OPTUNA_TRIALS = 16


def report_only(trial: hw.Trial) -> None:
    trial.report(loss=trial.config["lr"])


def headwater_study(num_trials: int, folder: Path, lanes: int | str) -> int:
    space = {"lr": hw.loguniform(1e-5, 1.0), "momentum": hw.uniform(0.0, 1.0)}
    study = hw.Study(report_only, space=space, metric="loss", storage=folder / "headwater.db", lanes=lanes)
    result = study.run(num_trials=num_trials)
    assert len(result.ranked) == num_trials
    return num_trials


def optuna_study(num_trials: int, folder: Path) -> int:
    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("momentum", 0.0, 1.0)
        loss = trial.suggest_float("lr", 1e-5, 1.0, log=True)
        trial.report(loss, 1)
        return loss

    storage = f"sqlite:///{folder / 'optuna.db'}"
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=num_trials)
    return num_trials


def report_epochs(trial: hw.Trial) -> None:
    for epoch in trial.epochs(NUM_EPOCHS):
        trial.report(loss=trial.config["lr"] / (epoch + 1))


def headwater_epochs(search: str | Build, folder: Path) -> int:
    space = {"lr": hw.loguniform(1e-5, 1.0)}
    study = hw.Study(
        report_epochs, space=space, metric="loss", storage=folder / "headwater.db", lanes=NUM_LANES, search=search,
        max_epochs=NUM_EPOCHS, save_every=None,
    )  # fmt: skip
    return sum(trial.epochs for trial in study.run(num_trials=NUM_LANES).trials)


def optuna_epochs(folder: Path) -> int:
    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("lr", 1e-5, 1.0, log=True)
        for epoch in range(NUM_EPOCHS):
            trial.report(rate / (epoch + 1), epoch)
            trial.should_prune()
        return rate

    storage = f"sqlite:///{folder / 'optuna.db'}"
    study = optuna.create_study(
        storage=storage, sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.SuccessiveHalvingPruner()
    )
    study.optimize(objective, n_trials=NUM_OPTUNA_TRIALS)
    return NUM_OPTUNA_TRIALS * NUM_EPOCHS


def cost(run: Run) -> tuple[float, float]:
    """Return CPU and wall milliseconds per unit of work."""
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = time.process_time(), time.perf_counter()
        count = run(Path(folder))
        return (time.process_time() - cpu) / count * 1e3, (time.perf_counter() - wall) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    num_trials = options.trials
    ways: dict[str, Run] = {
        "Headwater, lanes='auto'": lambda folder: headwater_study(num_trials, folder, "auto"),
        "Headwater, lanes=1": lambda folder: headwater_study(num_trials, folder, 1),
        "Optuna's loop, RandomSampler": lambda folder: optuna_study(num_trials, folder),
    }
    reporting: dict[str, Run] = {
        "Headwater, random": lambda folder: headwater_epochs("random", folder),
        "Headwater, ASHA": lambda folder: headwater_epochs(ASHA(concurrency=NUM_LANES), folder),
        f"Optuna's loop ({NUM_OPTUNA_TRIALS} trials), SuccessiveHalvingPruner": optuna_epochs,
    }
    cost(lambda folder: headwater_study(1, folder, 1))  # imports torch and the rest
    print(heading("Overhead of the loop, the searcher and the store"))
    print(f"Medians of {options.repeats} interleaved runs.\n\n## {num_trials} trials that only report\n")
    show(ways, options.repeats, "trial")
    print(f"\n## {NUM_LANES} lanes that report at most {NUM_EPOCHS} epochs; ASHA ends most of them before\n")
    show(reporting, options.repeats, "report of a lane")


def show(ways: dict[str, Run], num_repeats: int, unit: str) -> None:
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(num_repeats):
        for name, run in ways.items():
            costs[name].append(cost(run))
    print(f"| loop | CPU ms per {unit} | wall ms per {unit} |\n|---|---|---|")
    for name, pairs in costs.items():
        cpu, wall = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {name} | {cpu:.3f} | {wall:.3f} |", flush=True)


if __name__ == "__main__":
    main()
