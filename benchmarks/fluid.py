"""What is gained where idle devices go to the trials that hold up the rest: time to a target, and how busy devices are.

    python benchmarks/fluid.py [--seeds 3] [--recorded FILE] [--table early late lanes first] [--search ASHA ...]

First 240 configurations of an MLP on the digits are really trained, for their curves and their seconds. Then searches
run over them on simulated devices: the conductors, searchers and plans are those of any study, only the clock jumps.
*fifo* is Headwater without Fluid, *fluid* the paper's rules, *ours* the default. `--recorded` keeps what was trained in
a file, and goes by it where it is there.
benchmarks/fluid_real.py trains for real, on two processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
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
START_S, SAVE_S = 2.0, 0.5

Settings = tuple[float, int, int]


@dataclass(frozen=True)
class Recorded:
    """What real training has shown of a configuration."""

    accuracies: tuple[float, ...]
    epoch_s: float


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a table is about."""

    title: str
    share_below: float
    """The target is what so large a share of the configurations never comes to."""
    median_epoch_s: float
    """Epochs are as long as that at the median, and differ as those of the digits do."""
    is_at_end: bool = False
    """Whether only a trial that has trained all its epochs can reach the target."""
    cost_of_lane: float = 1.0


SETTINGS = {
    "early": Setting(title="Short epochs, a target that is reached early", share_below=0.9, median_epoch_s=1.2),
    "late": Setting(
        title="Epochs of half a minute, a target that only whole trials reach",
        share_below=0.97,
        median_epoch_s=30.0,
        is_at_end=True,
    ),
    "lanes": Setting(
        title="As the first, where lanes gain: 8 take twice the time of one",
        share_below=0.9,
        median_epoch_s=1.2,
        cost_of_lane=1 / 7,
    ),
}


@dataclass(frozen=True)
class Figures:
    """How a simulated study went."""

    target_s: float
    end_s: float
    busy: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recorded", type=Path)
    parser.add_argument("--table", nargs="+", choices=(*SETTINGS, "first"), default=(*SETTINGS, "first"))
    parser.add_argument("--search", nargs="+", choices=tuple(SEARCHES), default=tuple(SEARCHES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Fluid: devices go to the trials that hold up the rest"))
    recorded = {} if options.table == ["first"] else load_recorded(options.recorded)
    for name in options.table:
        if name in SETTINGS:
            print(f"\n## {SETTINGS[name].title}\n")
            print_simulated(recorded, SETTINGS[name], options.search, options.seeds)
        else:
            print("\n## A first study, which has to find out what several devices gain\n")
            print_first_studies(options.seeds)


def load_recorded(path: Path | None) -> dict[Settings, Recorded]:
    """Return what was recorded in an earlier run, or train now and keep it there."""
    if path is not None and path.exists():
        rows = json.loads(path.read_text())
        return {(row[0], row[1], row[2]): Recorded(tuple(row[3]), row[4]) for row in rows}
    recorded = record()
    if path is not None:
        path.write_text(json.dumps([[*key, one.accuracies, one.epoch_s] for key, one in recorded.items()]))
    return recorded


def print_first_studies(num_seeds: int) -> None:
    """Compare with a queue where trials take 1 to 10 s an epoch, and further devices cost more or less."""
    trials = "3 and 27 trials of up to 27 epochs on 4, 8 and 16 devices"
    print(f"Time as a share of that in a queue, {trials}, {num_seeds} seeds.\n")
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


def print_simulated(
    recorded: Mapping[Settings, Recorded], setting: Setting, searches: Sequence[str], num_seeds: int
) -> None:
    target = find_target(recorded, setting)
    print(f"Minutes to an accuracy of {target:.3f} (share of the time that devices are busy), {num_seeds} seeds.\n")
    print("| search | devices | fifo | fluid | ours | ours, times as fast | to the end | fluid, to the end |")
    print("|---|---|---|---|---|---|---|---|")
    for name, num_devices in itertools.product(searches, NUM_DEVICES):
        cells, ends, search = {}, {}, SEARCHES[name]
        for allocation in ALLOCATIONS:
            runs = [simulate(recorded, search, num_devices, allocation, setting, seed) for seed in range(num_seeds)]
            cells[allocation] = fmean(run.target_s for run in runs), fmean(run.busy for run in runs)
            ends[allocation] = fmean(run.end_s for run in runs)
        shown = " | ".join(f"{seconds / 60:.1f} ({busy:.0%})" for seconds, busy in cells.values())
        gain, end, paper = (
            cells["fifo"][0] / cells["ours"][0],
            ends["fifo"] / ends["ours"],
            ends["fifo"] / ends["fluid"],
        )
        print(f"| {name} | {num_devices} | {shown} | **{gain:.2f}** | {end:.2f} | {paper:.2f} |", flush=True)


def simulate(
    recorded: Mapping[Settings, Recorded],
    search: Any,
    num_devices: int,
    allocation: str,
    setting: Setting,
    seed: int,
) -> Figures:
    """Run a study to its end, and tell when it had reached the target on the way."""
    scale = setting.median_epoch_s / median(one.epoch_s for one in recorded.values())

    def read(config: Mapping[str, Any]) -> Recorded:
        return recorded[config["lr"], config["width"], config["batch_size"]]

    def time_epoch(config: Mapping[str, Any], num_lanes: int, kind: str) -> float:
        return scale * read(config).epoch_s * (1 + setting.cost_of_lane * (num_lanes - 1))

    times = SimulatedTimes(
        epoch_s=time_epoch,
        num_epochs=MAX_EPOCHS,
        start_s=START_S,
        save_s=SAVE_S,
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
            callbacks=[
                Reaching(
                    find_target(recorded, setting), MAX_EPOCHS if setting.is_at_end else 1, executor.clock, reached
                )
            ],
        )
        result = study.run(num_trials=NUM_TRIALS)
        with open_store(Path(folder) / "study.db") as store:
            spans = store.spans(store.study("one"))
    busy_s = sum(span.end_s - span.begin_s for span in spans)
    return Figures(reached[0] if reached else result.seconds, result.seconds, busy_s / (num_devices * result.seconds))


class Reaching(hw.Callback):
    """Notes when the target is reached."""

    def __init__(self, target: float, least_epoch: int, clock: Callable[[], float], reached: list[float]) -> None:
        self._target, self._least_epoch, self._clock, self._reached = target, least_epoch, clock, reached

    def on_reports(self, reports: Sequence[Any]) -> None:
        late = [report for report in reports if report.epoch >= self._least_epoch]
        if any(report.metrics["accuracy"] >= self._target for report in late):
            self._reached.append(self._clock())


def find_target(recorded: Mapping[Settings, Recorded], setting: Setting) -> float:
    """Return the accuracy that is aimed at."""
    best = sorted(one.accuracies[-1] if setting.is_at_end else max(one.accuracies) for one in recorded.values())
    return best[int(setting.share_below * len(best))]


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
