"""Whether devices that flow end a study earlier on two real processes, and whether its end can be foreseen.

    python benchmarks/fluid_real.py [--turns 2] [--trials 9] [--epochs 9]

A few epochs are timed: of one trial on one device and on both, and of a group of lanes; and what a study takes besides:
to try group sizes, to open and to end, and from the end of a placement to the beginning of the next. The same study
then runs on simulated devices that take as long, which is the prediction, and for real: without Fluid (fifo) and with
it (ours), in turns. The processes are there before: a study that is not timed starts them. The median of the turns is
shown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
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
from headwater.trials import Device, Result, Span, SpanPurpose

NUM_LANES = 3
MAX_EPOCHS = 9
NUM_PILOT_EPOCHS = 4
SEARCHES = ("halving", "hyperband")
ALLOCATIONS = ("fifo", "ours")
TRAINING = (SpanPurpose.LANES, SpanPurpose.RANKS)

Train = Callable[[hw.Trial], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What studies are run of."""

    name: str
    function: Train
    lanes: int | str
    num_trials: int
    max_epochs: int


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
    """What a placement takes besides its epochs, from the end of the one before it."""
    profile_s: float
    """To try group sizes; 0 where they are given."""
    besides_s: float
    """Of a study before its first placement begins and after its last has ended."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """What a short study shows."""

    epoch_s: float
    start_s: float
    gap_s: float
    """From the end of a placement to the beginning of the next on its device; 0 where there is none."""
    profile_s: float
    besides_s: float


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
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=MAX_EPOCHS, help=f"of a trial, {MAX_EPOCHS} at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Fluid on two processes: without and with, predicted and measured"))
    print("Seconds from `run` to its end; in brackets, by how much the prediction was off.\n")
    print("| function | search | fifo, predicted | fifo | ours, predicted | ours | fifo / ours |")
    print("|---|---|---|---|---|---|---|")
    sizes = {"num_trials": options.trials, "max_epochs": options.epochs}
    cases = (
        Case(name="unfusable", function=train_apart, lanes="auto", **sizes),
        Case(name="fusable", function=train, lanes=NUM_LANES, **sizes),
    )
    executor = StayingExecutor(2)
    try:
        run(executor, train_apart, search="random", allocation="fifo", lanes=1, num_trials=2, max_epochs=1)
        for case in cases:
            for search in SEARCHES:
                print_row(executor, case, search, options.turns)
    finally:
        executor.executor.close()


def print_row(executor: StayingExecutor, case: Case, search: str, num_turns: int) -> None:
    """Print what a search was foreseen to take, and took."""
    laps: dict[str, list[float]] = {allocation: [] for allocation in ALLOCATIONS}
    foreseen: dict[str, list[float]] = {allocation: [] for allocation in ALLOCATIONS}
    sizes = {"lanes": case.lanes, "num_trials": case.num_trials, "max_epochs": case.max_epochs}
    for _ in range(num_turns):
        timed = measure(executor, case)
        for allocation in ALLOCATIONS:
            foreseen[allocation].append(predict(timed, case, search, allocation))
            since = time.perf_counter()
            run(executor, case.function, search=search, allocation=allocation, **sizes)
            laps[allocation].append(time.perf_counter() - since)
    cells = []
    for allocation in ALLOCATIONS:
        predicted, measured = median(foreseen[allocation]), median(laps[allocation])
        cells += [f"{predicted:.1f}", f"{measured:.1f} ({predicted / measured - 1:+.0%})"]
    gain = median(laps["fifo"]) / median(laps["ours"])
    print(f"| {case.name} | {search} | {' | '.join(cells)} | **{gain:.2f}** |", flush=True)


def measure(executor: StayingExecutor, case: Case) -> Timed:
    """Time a few epochs of each shape."""
    function, lanes = case.function, case.lanes
    size = lanes if isinstance(lanes, int) else 1
    lone = run_pilot(executor, function, num_trials=4, allocation="fifo", lanes=1)
    wide = run_pilot(executor, function, num_trials=1, allocation="ours", lanes="auto")
    fused = run_pilot(executor, function, num_trials=2 * size, allocation="fifo", lanes=size)
    tried = run_pilot(executor, function, num_trials=case.num_trials, allocation="fifo", lanes=lanes, max_epochs=1)
    return Timed(
        lone_s=lone.epoch_s,
        wide_s=wide.epoch_s,
        lanes_s=fused.epoch_s,
        start_s=lone.gap_s + fmean(pilot.start_s for pilot in (lone, wide, fused)),
        profile_s=tried.profile_s,
        besides_s=max(min(pilot.besides_s for pilot in (lone, wide, fused)) - lone.gap_s, 0.0),
    )


def run_pilot(executor: StayingExecutor, function: Train, **settings: Any) -> Pilot:
    """Run a short study, and read from its spans what took how long."""
    settings = {"max_epochs": NUM_PILOT_EPOCHS, **settings}
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder) / "study.db"
        since = time.perf_counter()
        result = run(executor, function, search="random", storage=storage, name="pilot", **settings)
        run_s = time.perf_counter() - since
        with open_store(storage) as store:
            spans = store.spans(store.study("pilot"))
    epochs = [[report.metrics["seconds"] for report in trial.history] for trial in result.trials]
    trained = [span.end_s - span.begin_s for span in spans if span.purpose in TRAINING]
    tried = [span.end_s - span.begin_s for span in spans if span.purpose is SpanPurpose.MEASUREMENT]
    return Pilot(
        epoch_s=fmean(second for seconds in epochs for second in seconds),
        start_s=max(fmean(trained) - fmean(sum(seconds) for seconds in epochs), 0.0),
        gap_s=find_gap(spans),
        profile_s=sum(tried),
        besides_s=run_s - max(span.end_s for span in spans) + min(span.begin_s for span in spans),
    )


def find_gap(spans: Sequence[Span]) -> float:
    """Return how long a device waits from one placement to the next, on the mean."""
    by_device = groupby(sorted(spans, key=lambda span: (span.device, span.begin_s)), key=lambda span: span.device)
    gaps = [later.begin_s - earlier.end_s for _, mine in by_device for earlier, later in pairwise(mine)]
    return max(fmean(gaps), 0.0) if gaps else 0.0


def predict(timed: Timed, case: Case, search: str, allocation: str) -> float:
    """Return when the study ends on simulated devices that take as long as was timed."""
    lanes = case.lanes
    lane_s = (timed.lanes_s - timed.lone_s) / (lanes - 1) if isinstance(lanes, int) else timed.lone_s

    def time_epoch(config: Mapping[str, Any], num_lanes: int, kind: str) -> float:
        return timed.lone_s + lane_s * (num_lanes - 1)

    speeds = Speeds(scaling=max(2 * timed.wide_s / timed.lone_s, 1.0), max_devices=2)
    times = SimulatedTimes(
        epoch_s=time_epoch,
        num_epochs=case.max_epochs,
        start_s=timed.start_s,
        profile_s=timed.profile_s,
        devices=speeds,
    )
    devices = [Device(name=f"cpu:{place}", kind="cpu") for place in range(2)]
    executor = SimulatedExecutor(devices, lambda config, epoch: {"loss": config["lr"], "seconds": 0.0}, times)
    sizes = {"lanes": lanes, "num_trials": case.num_trials, "max_epochs": case.max_epochs}
    result = run(executor, never_called, search=search, allocation=allocation, **sizes)
    return timed.besides_s + result.seconds


def run(executor: Any, function: Train, *, num_trials: int, **settings: Any) -> Result:
    """Run a study on an executor."""
    settings = {"storage": None, **settings}
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
