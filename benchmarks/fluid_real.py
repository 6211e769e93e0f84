"""Whether devices that flow end a study earlier on two real processes, and whether its end can be foreseen.

    python benchmarks/fluid_real.py [--turns 3]

A few epochs are timed: of one trial on one device and on both, and of a group of lanes. The same study then runs on
simulated devices that take as long, which is the prediction, and for real: without Fluid (fifo) and with it (ours), in
turns. The processes are there before; the median of the turns is shown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading
from torch import nn

import headwater as hw
from headwater.conduct.protocol import Conductor
from headwater.execute import ProcessExecutor, SimulatedExecutor, SimulatedTimes
from headwater.plan.speeds import Speeds
from headwater.store import open_store
from headwater.trials import Device, Result

NUM_LANES = 3
NUM_TRIALS = 9
MAX_EPOCHS = 9
NUM_PILOT_EPOCHS = 4
SEARCHES = ("halving", "hyperband")
ALLOCATIONS = ("fifo", "ours")

Train = Callable[[hw.Trial], None]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What was timed of a function."""

    lone_s: float
    """An epoch of one trial on one device, with the other device busy too."""
    wide_s: float
    """And on both."""
    lanes_s: float
    """An epoch of a group, with the other device busy too."""
    start_s: float
    """From when a placement is given until its first epoch begins, and what its end takes."""


class StayingExecutor:
    """An executor whose processes stay from one study to the next."""

    def __init__(self, num_workers: int) -> None:
        self.executor = ProcessExecutor(num_workers)

    def list_devices(self) -> Sequence[Device]:
        """Return those that stay."""
        return self.executor.list_devices()

    def run(self, conductor: Conductor) -> None:
        """Run there."""
        self.executor.run(conductor)

    def close(self) -> None:
        """Let them stay."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Fluid on two processes: without and with, predicted and measured"))
    print("Seconds from `run` to its end; in brackets, by how much the prediction was off.\n")
    print("| function | search | fifo, predicted | fifo | ours, predicted | ours | fifo / ours |")
    print("|---|---|---|---|---|---|---|")
    executor = StayingExecutor(2)
    try:
        for name, function, lanes in (("unfusable", train_apart, "auto"), ("fusable", train, NUM_LANES)):
            print_rows(executor, name, function, lanes, options.turns)
    finally:
        executor.executor.close()


def print_rows(executor: StayingExecutor, name: str, function: Train, lanes: int | str, num_turns: int) -> None:
    """Print a row for each search."""
    for search in SEARCHES:
        laps: dict[str, list[float]] = {allocation: [] for allocation in ALLOCATIONS}
        foreseen: dict[str, list[float]] = {allocation: [] for allocation in ALLOCATIONS}
        for _ in range(num_turns):
            timed = measure(executor, function, lanes if isinstance(lanes, int) else 1)
            for allocation in ALLOCATIONS:
                foreseen[allocation].append(predict(timed, search, allocation, lanes))
                since = time.perf_counter()
                run(executor, function, search=search, allocation=allocation, lanes=lanes)
                laps[allocation].append(time.perf_counter() - since)
        cells = []
        for allocation in ALLOCATIONS:
            predicted, measured = median(foreseen[allocation]), median(laps[allocation])
            cells += [f"{predicted:.1f}", f"{measured:.1f} ({predicted / measured - 1:+.0%})"]
        gain = median(laps["fifo"]) / median(laps["ours"])
        print(f"| {name} | {search} | {' | '.join(cells)} | **{gain:.2f}** |", flush=True)


def measure(executor: StayingExecutor, function: Train, lanes: int) -> Timed:
    """Time a few epochs of each shape."""
    pilots = {
        "lone": time_epochs(executor, function, num_trials=2, allocation="fifo", lanes=1),
        "wide": time_epochs(executor, function, num_trials=1, allocation="ours", lanes="auto"),
        "lanes": time_epochs(executor, function, num_trials=2 * lanes, allocation="fifo", lanes=lanes),
    }
    return Timed(
        lone_s=pilots["lone"][0],
        wide_s=pilots["wide"][0],
        lanes_s=pilots["lanes"][0],
        start_s=fmean(start_s for _, start_s in pilots.values()),
    )


def time_epochs(executor: StayingExecutor, function: Train, **settings: Any) -> tuple[float, float]:
    """Return how long an epoch takes, and how long a placement takes besides."""
    num_trials = settings.pop("num_trials")
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder) / "study.db"
        result = run(
            executor, function, search="random", storage=storage, name="pilot", max_epochs=NUM_PILOT_EPOCHS,
            num_trials=num_trials, **settings,
        )  # fmt: skip
        with open_store(storage) as store:
            spans = store.spans(store.study("pilot"))
    epochs = [[report.metrics["seconds"] for report in trial.history] for trial in result.trials]
    epoch_s = fmean(second for seconds in epochs for second in seconds)
    span_s = fmean(span.end_s - span.begin_s for span in spans)
    return epoch_s, max(span_s - fmean(sum(seconds) for seconds in epochs), 0.0)


def predict(timed: Timed, search: str, allocation: str, lanes: int | str) -> float:
    """Return when the study ends on simulated devices that take as long as was timed."""
    lane_s = (timed.lanes_s - timed.lone_s) / (lanes - 1) if isinstance(lanes, int) else timed.lone_s

    def time_epoch(config: Mapping[str, Any], num_lanes: int, kind: str) -> float:
        return timed.lone_s + lane_s * (num_lanes - 1)

    speeds = Speeds(scaling=max(2 * timed.wide_s / timed.lone_s, 1.0), max_devices=2)
    times = SimulatedTimes(epoch_s=time_epoch, num_epochs=MAX_EPOCHS, start_s=timed.start_s, devices=speeds)
    devices = [Device(name=f"cpu:{place}", kind="cpu") for place in range(2)]
    executor = SimulatedExecutor(devices, lambda config, epoch: {"loss": config["lr"], "seconds": 0.0}, times)
    return run(executor, never_called, search=search, allocation=allocation, lanes=lanes).seconds


def run(executor: Any, function: Train, *, num_trials: int = NUM_TRIALS, **settings: Any) -> Result:
    """Run a study on an executor."""
    settings = {"storage": None, "max_epochs": MAX_EPOCHS, **settings}
    study = hw.Study(
        function, space={"lr": hw.loguniform(1e-3, 0.3)}, metric="loss", packing=None, executor=executor, **settings
    )
    return study.run(num_trials=num_trials, watcher=hw.Silence())


def train(trial: hw.Trial) -> None:
    """Train an MLP that fills a core."""
    train_mlp(trial, is_apart=False)


def train_apart(trial: hw.Trial) -> None:
    """Train it in a way that no two trials can go together."""
    train_mlp(trial, is_apart=True)


def train_mlp(trial: hw.Trial, *, is_apart: bool) -> None:
    """Report the loss, and how long the epoch took."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(4096, 256), torch.randn(4096, 1)
    model = trial.prepare_model(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    )
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(MAX_EPOCHS):
        since = time.perf_counter()
        for x, y in zip(inputs.split(256), targets.split(256), strict=True):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if is_apart and loss.detach().numpy() > 1e6:
            break
        trial.report(loss=loss, seconds=time.perf_counter() - since)


def never_called(trial: hw.Trial) -> None:
    """Stand for the function where nothing trains."""
    raise AssertionError("nothing trains in a simulation")


if __name__ == "__main__":
    main()
