"""Is the default executor ever much slower than the better of `inline` and `processes`?

Run `python benchmarks/auto.py` (about ten minutes on an idle machine), or with `--only tiny` for one workload. Each
study runs in a fresh process, executors take turns, and the clock includes the start of worker processes. The table
goes to standard output as Markdown.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from measuring import heading
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.report import Silence

EXECUTORS = ("inline", "processes", "auto")
MOST = 1.05
"""The largest ratio of `auto` to the better of the two others that we aim at."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A study; `width` sets how long a step takes."""

    words: str
    num_trials: int
    num_epochs: int
    search: str
    lanes: int | str
    width: int


WORKLOADS = {
    "tiny": Workload(words="8 random trials", num_trials=8, num_epochs=4, search="random", lanes=1, width=128),
    "asha": Workload(words="64 small ASHA trials", num_trials=64, num_epochs=9, search="asha", lanes=1, width=576),
    "random": Workload(words="64 random trials", num_trials=64, num_epochs=9, search="random", lanes=1, width=288),
    "large": Workload(words="64 larger ASHA trials", num_trials=64, num_epochs=27, search="asha", lanes=1, width=2304),
    "long": Workload(words="64 longer trials", num_trials=64, num_epochs=27, search="random", lanes=1, width=1152),
}
torch.manual_seed(0)
INPUTS = torch.randn(4096, 64)
DATA = TensorDataset(INPUTS, INPUTS[:, :10].argmax(1))


def run(name: str, executor: str) -> dict[str, float]:
    """Run a study in this process; return its seconds, and the CPU seconds of this process and its workers."""
    work = WORKLOADS[name]

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(64, work.width), nn.ReLU(), nn.Linear(work.width, 10)))
        loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in trial.epochs(work.num_epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss.item())

    torch.set_num_threads(1)
    study = hw.Study(
        train, space={"lr": hw.loguniform(1e-3, 0.5)}, metric="loss", search=work.search, storage=None,
        max_epochs=work.num_epochs, lanes=work.lanes, packing=None, executor=executor, device="cpu", seed=0,
    )  # fmt: skip
    begin, cpu_before = time.perf_counter(), _count_cpu()
    study.run(num_trials=work.num_trials, watcher=Silence())
    return {"seconds": time.perf_counter() - begin, "cpu": _count_cpu() - cpu_before}


def _count_cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(name: str, num_runs: int) -> str:
    """Run a workload with each executor in turn; return a row of the table."""
    runs: dict[str, list[dict[str, float]]] = {executor: [] for executor in EXECUTORS}
    for turn in range(num_runs):
        for executor in EXECUTORS[turn % 3 :] + EXECUTORS[: turn % 3]:  # none always runs behind the same neighbour
            command = [sys.executable, __file__, "--run", name, executor]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs[executor].append(json.loads(done.stdout.splitlines()[-1]))
            print(name, executor, runs[executor][-1], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    seconds = {executor: median(one["seconds"] for one in found) for executor, found in runs.items()}
    cpu = {executor: median(one["cpu"] for one in found) for executor, found in runs.items()}
    ratio = seconds["auto"] / min(seconds["inline"], seconds["processes"])
    cells = [f"{seconds[executor]:.1f} ({cpu[executor]:.1f})" for executor in EXECUTORS]
    return f"| {WORKLOADS[name].words} | {' | '.join(cells)} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--runs", type=int, default=3, help="how often each study runs")
    parser.add_argument("--run", nargs=2, metavar=("WORKLOAD", "EXECUTOR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(*options.run)))
        return
    rows = [measure(name, options.runs) for name in options.only]
    print(heading("Is the default executor as fast as the better one?"))
    print(f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n")
    print("| study | inline: s (CPU s) | processes | auto | auto / better |\n|---|---|---|---|---|")
    print("\n".join(rows))
    print(f"\nMedians of {options.runs}, whole study, starts included. The aim is a ratio of {MOST} at most.")


if __name__ == "__main__":
    main()
