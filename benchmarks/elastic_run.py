"""Elastic runs on real raylets of this machine: predicted time and cost against what happened, for three deadlines.

    python benchmarks/elastic_run.py [--write]

A search of 9 trials in stages of 9x1, 3x3 and 1x5 epochs trains on up to two nodes of one CPU each. How long nodes take
to join and an epoch to train is measured first; the plans are made of that. An epoch is a fixed time on the clock
and next to no computing, so that what is compared is the plan and its execution, not how the machine shares its cores.
On a quiet machine it takes about seven minutes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn

import headwater as hw
from headwater.plan.elastic import Limits
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.search.halving import SHA
from headwater.trials import Report, Spending

EPOCH_S = 6.0
DOLLARS_PER_HOUR = 3.06
STAGES = [
    JobStage(num_trials=9, num_epochs=1),
    JobStage(num_trials=3, num_epochs=3),
    JobStage(num_trials=1, num_epochs=5),
]
NUM_NODES = 2
"""As many as the machine has cores."""
NUM_MEASURED = 3
"""So many epochs are trained on each node to see how long they take."""
FACTORS = (1.02, 1.25, 2.0)
"""Deadlines, as multiples of what the fastest plan takes."""
TABLE = Path(__file__).with_suffix(".md")


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(4, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    x = torch.linspace(-1, 1, 16).reshape(4, 4)
    for _ in trial.epochs(9):
        end_s = time.monotonic() + EPOCH_S
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(max(end_s - time.monotonic(), 0.0))
        trial.report(loss=loss)


@dataclass
class Watch(hw.Callback):
    """Notes when each trial reports."""

    reports_s: dict[int, list[float]] = field(default_factory=dict)

    def on_reports(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self.reports_s.setdefault(report.number, []).append(time.monotonic())


def make_study(executor: object, callbacks: list[hw.Callback]) -> hw.Study:
    return hw.Study(
        train,
        space={"lr": hw.loguniform(1e-3, 0.5)},
        metric="loss",
        search=SHA(reduction=3),
        storage=Path(tempfile.mkdtemp()) / "elastic.db",
        lanes=1,
        packing=None,
        max_epochs=9,
        executor=executor,  # type: ignore[arg-type]
        callbacks=callbacks,
    )


def measure() -> tuple[float, float]:
    """Return how long nodes take from their launch to their first epochs, and an epoch as the study sees it."""
    watch = Watch()
    executor = hw.ElasticExecutor(hw.LocalCluster(), num_nodes=NUM_NODES)
    study = replace(make_study(executor, [watch]), search="random", max_epochs=NUM_MEASURED)
    spending = study.run(num_trials=NUM_NODES).spending
    assert spending is not None
    epoch_s = median(later - earlier for times in watch.reports_s.values() for earlier, later in pairwise(times))
    return max(spending.seconds - NUM_MEASURED * epoch_s, 0.0), epoch_s


def run(job: Job, deadline_s: float) -> tuple[tuple[int, ...], Spending]:
    executor = hw.ElasticExecutor(hw.LocalCluster(), job, deadline_s=deadline_s)
    assert executor.plan is not None
    spending = make_study(executor, []).run(num_trials=9).spending
    assert spending is not None
    return executor.plan.instances, spending


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the table into {TABLE.name}")
    write = parser.parse_args().write
    initialise_s, epoch_s = measure()
    instance = Instance(
        name="local", num_devices=1, dollars_per_hour=DOLLARS_PER_HOUR, initialise_s=initialise_s, minimum_s=60.0
    )
    seconds = EpochSeconds(by_devices={1: epoch_s})
    job = Job(stages=STAGES, epoch_seconds=seconds, instance=instance, max_instances=NUM_NODES)
    fastest = plan_exactly(job, Limits(budget_dollars=1e9))
    assert fastest is not None
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    lines = [
        f"A node trains {initialise_s:.1f} s after its launch, an epoch takes {epoch_s:.2f} s.",
        f"${DOLLARS_PER_HOUR} an hour, 60 s at least; {cores} cores, with a load of {load:.1f} before the runs.",
        "",
        "| deadline | nodes by stage | predicted | actual | | predicted | actual | | planned anew |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for factor in FACTORS:
        deadline_s = factor * fastest.seconds
        instances, spent = run(job, deadline_s)
        assert spent.planned_s is not None
        assert spent.planned_dollars is not None
        late, dear = spent.seconds / spent.planned_s - 1, spent.cost_dollars / spent.planned_dollars - 1
        nodes = ", ".join(map(str, instances))
        times = f"{spent.planned_s:.1f} s | {spent.seconds:.1f} s | {late:+.1%}"
        costs = f"${spent.planned_dollars:.4f} | ${spent.cost_dollars:.4f} | {dear:+.1%}"
        row = f"| {deadline_s:.0f} s | {nodes} | {times} | {costs} | {spent.num_replanned} |"
        lines.append(row)
        print(row, flush=True)
    if write:
        head = "# Elastic runs: predicted and actual\n\n`python benchmarks/elastic_run.py --write`\n\n"
        TABLE.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
