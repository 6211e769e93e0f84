"""What is gained where idle devices go to the trials that hold up the rest: time to a target, and how busy devices are.

    python benchmarks/fluid.py [--seeds 3]

First 240 configurations of an MLP on the digits are really trained, for their curves and their seconds. Then searches
run over them on simulated devices: the conductors, searchers and plans are those of any study, only the clock jumps.
*fifo* is Headwater without Fluid, *fluid* the paper's rules, *ours* the default.
benchmarks/fluid_real.py trains for real, on two processes.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from measuring import heading
from sklearn.datasets import load_digits
from torch import nn

import headwater as hw
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.plan.speeds import Speeds
from headwater.search import ASHA, BOHB, PBT, Hyperband, SyncBOHB
from headwater.store import open_store
from headwater.trials import Device

MAX_EPOCHS = 27
RATES = [10 ** (-3 + 0.25 * step) for step in range(12)]
WIDTHS, BATCHES = (16, 64, 256, 1024), (16, 32, 64, 128, 256)
NUM_DEVICES = (4, 8, 16, 64)
NUM_TRIALS = 81
TARGET_SHARE = 0.9
"""The target is the accuracy that so large a share of the configurations never comes to."""
SEARCHES: dict[str, Any] = {
    "PBT": PBT(interval=3, population=16, max_epochs=MAX_EPOCHS),
    "Hyperband": Hyperband(concurrency=1),
    "ASHA": ASHA(),
    "BOHB": BOHB(),
    "synchronous BOHB": SyncBOHB(),
}
ALLOCATIONS = ("fifo", "fluid", "ours")
SCALING = 1.1
"""What each further device costs, as on GPUs of one node; two cores of one CPU scale worse."""
MINUTES = 60.0
"""Epochs are taken to be so many times as long as those of the digits: as long as the paper's."""

Settings = tuple[float, int, int]


@dataclass(frozen=True)
class Recorded:
    """What real training has shown of a configuration."""

    accuracies: tuple[float, ...]
    epoch_s: float


@dataclass(frozen=True)
class Figures:
    """How a simulated study went."""

    target_s: float
    end_s: float
    busy: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Fluid: devices go to the trials that hold up the rest"))
    recorded = record()
    for title, gain in (
        ("Lanes gain nothing, as in the paper", 1.0),
        ("Lanes gain: 8 take twice the time of one", 1 / 7),
    ):
        print(f"\n## {title}\n")
        print_simulated(recorded, gain, options.seeds)
    print("\n## A first study, which has to find out what several devices gain\n")
    print_first_studies()


def print_first_studies(num_seeds: int = 5) -> None:
    """Compare with a queue where trials take 1 to 10 s an epoch, and further devices cost more or less."""
    print("Time as a share of that in a queue, 3 and 27 trials of up to 27 epochs on 4, 8 and 16 devices.\n")
    print("| each further device costs | search | mean | worst |\n|---|---|---|---|")
    for devices, search in itertools.product((1.1, 1.15, 1.5, None, 1.99), ("halving", "asha")):
        speeds = Speeds() if devices is None else Speeds(scaling=devices, max_devices=64)
        cases = itertools.product((3, 27), (4, 8, 16), range(num_seeds))
        shares = [run_first(speeds, search, "ours", *case) / run_first(speeds, search, "fifo", *case) for case in cases]
        name = "all that it adds" if devices is None else f"{devices} times"
        print(f"| {name} | {search} | {fmean(shares):.2f} | {max(shares):.2f} |", flush=True)


def run_first(speeds: Speeds, search: str, allocation: str, num_trials: int, num_devices: int, seed: int) -> float:
    times = SimulatedTimes(
        epoch_s=lambda config, num_lanes, kind: num_lanes * (1.0 + 9.0 * config["lr"]),
        num_epochs=MAX_EPOCHS,
        start_s=0.25,
        save_s=0.05,
        devices=speeds,
    )
    devices = [Device(name=f"gpu:{place}", kind="gpu") for place in range(num_devices)]
    study = hw.Study(
        never_called,
        space={"lr": hw.uniform(0.0, 1.0)},
        metric="loss",
        search=search,
        storage=None,
        max_epochs=MAX_EPOCHS,
        packing=None,
        allocation=allocation,
        seed=seed,
        executor=SimulatedExecutor(
            devices, lambda config, epoch: {"loss": abs(config["lr"] - 0.3) + 1.0 / epoch}, times
        ),
    )
    return study.run(num_trials=num_trials).seconds


def print_simulated(recorded: Mapping[Settings, Recorded], cost_of_lane: float, num_seeds: int) -> None:
    target = find_target(recorded)
    print(f"Minutes to an accuracy of {target:.3f} (share of the time that devices are busy), {num_seeds} seeds.\n")
    print(
        "| search | devices | fifo | fluid | ours | ours, times as fast | to the end |\n|---|---|---|---|---|---|---|"
    )
    for (name, search), num_devices in itertools.product(SEARCHES.items(), NUM_DEVICES):
        cells, ends = {}, {}
        for allocation in ALLOCATIONS:
            runs = [
                simulate(recorded, search, num_devices, allocation, cost_of_lane, seed) for seed in range(num_seeds)
            ]
            cells[allocation] = fmean(run.target_s for run in runs), fmean(run.busy for run in runs)
            ends[allocation] = fmean(run.end_s for run in runs)
        shown = " | ".join(f"{seconds / 60:.1f} ({busy:.0%})" for seconds, busy in cells.values())
        gain, end = cells["fifo"][0] / cells["ours"][0], ends["fifo"] / ends["ours"]
        print(f"| {name} | {num_devices} | {shown} | **{gain:.2f}** | {end:.2f} |", flush=True)


def simulate(
    recorded: Mapping[Settings, Recorded],
    search: Any,
    num_devices: int,
    allocation: str,
    cost_of_lane: float,
    seed: int,
) -> Figures:
    """Run a study to its end, and tell when it had reached the target on the way."""

    def read(config: Mapping[str, Any]) -> Recorded:
        return recorded[config["lr"], config["width"], config["batch_size"]]

    def time_epoch(config: Mapping[str, Any], num_lanes: int, kind: str) -> float:
        return MINUTES * read(config).epoch_s * (1 + cost_of_lane * (num_lanes - 1))

    times = SimulatedTimes(
        epoch_s=time_epoch,
        num_epochs=MAX_EPOCHS,
        start_s=2.0,
        save_s=0.5,
        devices=Speeds(scaling=SCALING, max_devices=num_devices),
    )
    devices = [Device(name=f"gpu:{place}", kind="gpu") for place in range(num_devices)]
    executor = SimulatedExecutor(devices, lambda config, epoch: {"accuracy": read(config).accuracies[epoch - 1]}, times)
    reached: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        study = hw.Study(
            never_called,
            space={"lr": hw.choice(RATES), "width": hw.choice(WIDTHS), "batch_size": hw.choice(BATCHES)},
            metric="accuracy",
            mode="max",
            search=search,
            storage=Path(folder) / "study.db",
            name="one",
            max_epochs=MAX_EPOCHS,
            packing=None,
            allocation=allocation,
            executor=executor,
            seed=seed,
            callbacks=[Reaching(find_target(recorded), executor.clock, reached)],
        )
        result = study.run(num_trials=NUM_TRIALS)
        with open_store(Path(folder) / "study.db") as store:
            spans = store.spans(store.study("one"))
    busy_s = sum(span.end_s - span.begin_s for span in spans)
    return Figures(reached[0] if reached else result.seconds, result.seconds, busy_s / (num_devices * result.seconds))


class Reaching(hw.Callback):
    """Notes when the target is reached."""

    def __init__(self, target: float, clock: Callable[[], float], reached: list[float]) -> None:
        self._target, self._clock, self._reached = target, clock, reached

    def on_reports(self, reports: Sequence[Any]) -> None:
        if any(report.metrics["accuracy"] >= self._target for report in reports):
            self._reached.append(self._clock())


def find_target(recorded: Mapping[Settings, Recorded]) -> float:
    """Return the accuracy that is aimed at."""
    best = sorted(max(one.accuracies) for one in recorded.values())
    return best[int(TARGET_SHARE * len(best))]


def record() -> dict[Settings, Recorded]:
    """Train every configuration for real: curves in lanes, seconds one by one."""
    found: dict[Settings, Recorded] = {}
    seconds = {(width, batch): time_epoch(width, batch) for width, batch in itertools.product(WIDTHS, BATCHES)}
    study = hw.Study(
        train,
        space={"lr": hw.choice(RATES), "width": hw.choice(WIDTHS), "batch_size": hw.choice(BATCHES)},
        metric="accuracy",
        mode="max",
        search="grid",
        storage=None,
        executor="inline",
        callbacks=(),
    )
    for trial in study.run(watcher=hw.Silence()).trials:
        settings = trial.config["lr"], trial.config["width"], trial.config["batch_size"]
        accuracies = tuple(report.metrics["accuracy"] for report in trial.history)
        found[settings] = Recorded(accuracies, seconds[settings[1:]])
    return found


def train(trial: hw.Trial) -> None:
    """Train an MLP on the digits."""
    data = load_digits()
    inputs = torch.tensor(data.data / 16.0, dtype=torch.float32)
    targets = torch.tensor(data.target)
    width, batch_size = trial.config["width"], trial.config["batch_size"]
    model = trial.prepare_model(nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    loader = trial.prepare_data_loader(
        torch.utils.data.TensorDataset(inputs[:1400], targets[:1400]), batch_size=batch_size, shuffle=True
    )
    for _ in trial.epochs(MAX_EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(inputs[1400:]).argmax(1) == targets[1400:]).double().mean()
        trial.report(accuracy=accuracy)


def time_epoch(width: int, batch_size: int) -> float:
    """Return the CPU time of an epoch in plain PyTorch."""
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = torch.randn(1400, 64), torch.randint(10, (1400,))
    laps = []
    for _ in range(4):
        since = time.process_time()
        for x, y in zip(inputs.split(batch_size), targets.split(batch_size), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        laps.append(time.process_time() - since)
    return min(laps)


def never_called(trial: hw.Trial) -> None:
    raise AssertionError("nothing trains in a simulation")


if __name__ == "__main__":
    main()
