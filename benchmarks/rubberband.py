"""Elastic plans against static and naive ones, in the shape of the tables of the RubberBand paper; nothing is launched.

    python benchmarks/rubberband.py [--instances 200] [--seed 0]

All numbers are predictions by the planner's own simulator, with the paper's jobs and prices; the same on any machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from statistics import fmean
from time import process_time

from headwater.plan.elastic import Limits, Prediction, plan_fastest, plan_greedily, plan_naively, plan_static, predict
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import Billing, EpochSeconds, Instance, Job, JobStage

P3_8XLARGE = Instance(name="p3.8xlarge", num_devices=4, dollars_per_hour=12.24, provision_s=15, initialise_s=15)
MOST_DEVICES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print_deadlines()
    print_stragglers()
    print_data_prices()
    print_sizes()
    print_initialisation()
    print_gaps(options.instances, Random(options.seed))
    print_planning_time()


def print_deadlines() -> None:
    print("## Three deadlines: successive halving of 32 trials up to 50 epochs (the paper's Table 2 and 3)\n")
    print("| deadline | static | naive | greedy | exact | saved | plan | as lanes too |")
    print("|---|---|---|---|---|---|---|---|")
    job = make_halving(32, 1, 50, 3, measure_in_nodes())
    lanes = replace(job, epoch_seconds=replace(job.epoch_seconds, by_lanes={2: 130.0, 4: 170.0, 8: 260.0, 16: 450.0}))
    for minutes in (20, 30, 40):
        limits = Limits(deadline_s=60 * minutes)
        row = [plan(job, limits) for plan in (plan_static, plan_naively, plan_greedily, plan_exactly)]
        fused = plan_exactly(lanes, limits)
        static, exact = row[0], row[3]
        assert static is not None
        assert exact is not None
        saved = f"{100 * (1 - exact.cost_dollars / static.cost_dollars):.0f} %"
        devices = ", ".join(map(str, exact.devices))
        print(f"| {minutes} min | {' | '.join(map(price, row))} | {saved} | {devices} | {price(fused)} |")
    print(
        "\nLanes: two trials as one take 1.2 times as long as one, 16 four times; assumed here, not measured on a GPU."
    )


def print_stragglers() -> None:
    print("\n## Stragglers and billing: 64 trials up to 508 epochs, 4 s an epoch, 20 min (Figure 9)\n")
    print("| spread | billing | static | naive | elastic | static / elastic |\n|---|---|---|---|---|---|")
    for spread, billing in product((0.0, 0.5, 1.0, 2.0), Billing):
        job = make_halving(64, 4, 508, 2, scale_by(4.0, 0.9, spread=spread))
        print_row([f"{spread:g}", str(billing)], replace(job, billing=billing), Limits(deadline_s=1200))


def print_data_prices() -> None:
    print("\n## What launching costs: 150 GB of data, the same job, 20 min (Figure 10)\n")
    print("| dollars per GB | per launch | static | naive | elastic | static / elastic |\n|---|---|---|---|---|---|")
    job = make_halving(64, 4, 508, 2, scale_by(4.0, 0.9))
    for dollars in (0.0, 0.01, 0.02, 0.04, 0.08, 0.16):
        instance = replace(P3_8XLARGE, launch_dollars=150 * dollars)
        print_row([f"{dollars:.2f}", f"${150 * dollars:.2f}"], replace(job, instance=instance), Limits(deadline_s=1200))


def print_sizes() -> None:
    print("\n## Numbers of trials: up to 50 epochs, 20 min (Figure 11)\n")
    print("| trials | billing | static | naive | elastic | static / elastic |\n|---|---|---|---|---|---|")
    for num_trials, billing in product((16, 32, 64, 128, 256), Billing):
        job = replace(make_halving(num_trials, 1, 50, 3, measure_in_nodes()), billing=billing)
        print_row([str(num_trials), str(billing)], job, Limits(deadline_s=1200))


def print_initialisation() -> None:
    print("\n## Start-up and deadline: 512 trials up to 4,096 epochs, 12 s an epoch (Figure 12)\n")
    print("| initialise | deadline | static | naive | elastic | static / elastic |\n|---|---|---|---|---|---|")
    for seconds, minutes in product((1, 10, 100), (90, 120, 160)):
        instance = replace(P3_8XLARGE, initialise_s=float(seconds))
        job = replace(make_halving(512, 4, 4096, 2, scale_by(12.0, 0.75)), instance=instance)
        print_row([f"{seconds} s", f"{minutes} min"], job, Limits(deadline_s=60 * minutes))


def print_gaps(num_instances: int, rng: Random) -> None:
    """Compare the greedy and the exact planner with all plans of small jobs."""
    greedy_gaps, exact_gaps, above_static = [], [], 0
    for _ in range(num_instances):
        job = draw_job(rng)
        limits = Limits(deadline_s=plan_fastest(job).seconds * rng.uniform(1.0, 3.0))
        every = [predict(job, devices) for devices in product(range(1, MOST_DEVICES + 1), repeat=len(job.stages))]
        best = min(plan.cost_dollars for plan in every if limits.admit(plan))
        static, greedy, exact = (plan(job, limits) for plan in (plan_static, plan_greedily, plan_exactly))
        assert greedy is not None
        assert exact is not None
        greedy_gaps.append(greedy.cost_dollars / best - 1)
        exact_gaps.append(exact.cost_dollars / best - 1)
        above_static += static is not None and exact.cost_dollars > static.cost_dollars + 1e-9
    print(
        f"\n## {num_instances} random jobs of three stages on up to {MOST_DEVICES} devices, against all their plans\n"
    )
    print("| planner | mean gap | worst gap |\n|---|---|---|")
    for name, gaps in (("greedy", greedy_gaps), ("exact", exact_gaps)):
        print(f"| {name} | {100 * fmean(gaps):.2f} % | {100 * max(gaps):.2f} % |")
    print(f"\nDearer than the best static plan: {above_static}.")


def print_planning_time() -> None:
    prices = {"1 GPU": (1, 3.06), "2 GPUs": (2, 6.12), "4 GPUs": (4, 12.24), "8 GPUs": (8, 24.48), "8 slower": (8, 7.2)}
    job = make_halving(512, 4, 4096, 2, scale_by(11.1, 0.9))
    limits = Limits(deadline_s=4 * 3600)
    begin = process_time()
    plans = []
    for name, (num_devices, dollars) in prices.items():
        instance = replace(P3_8XLARGE, name=name, num_devices=num_devices, dollars_per_hour=dollars)
        plans.append((name, plan_greedily(replace(job, instance=instance), limits)))
    seconds = process_time() - begin
    name, best = min(((name, plan) for name, plan in plans if plan), key=lambda one: one[1].cost_dollars)
    print(f"\n## {len(job.stages)} stages over {len(prices)} instance types, 4 hours\n")
    print(f"Greedy plans for all types took {seconds:.1f} s of CPU time; the cheapest is {name} at {price(best)}.")


def print_row(labels: Sequence[str], job: Job, limits: Limits) -> None:
    row = [plan(job, limits) for plan in (plan_static, plan_naively, plan_greedily)]
    static, best = row[0], row[2]
    ratio = f"{static.cost_dollars / best.cost_dollars:.2f}" if static and best else ""
    print(f"| {' | '.join([*labels, *map(price, row), ratio])} |")


def price(plan: Prediction | None) -> str:
    return "none" if plan is None else f"${plan.cost_dollars:.2f}"


def make_halving(num_trials: int, first: int, most: int, reduction: int, seconds: EpochSeconds) -> Job:
    """Plan the stages as the searcher does."""
    from headwater.search.rungs import plan_halving

    planned = plan_halving(num_trials, reduction=reduction, min_epochs=first, max_epochs=most)
    ends = [stage.until or most for stage in planned]
    epochs = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    stages = [
        JobStage(num_trials=stage.num_trials, num_epochs=count) for stage, count in zip(planned, epochs, strict=True)
    ]
    return Job(stages=stages, epoch_seconds=seconds, instance=P3_8XLARGE)


def measure_in_nodes() -> EpochSeconds:
    """An epoch of 111 s: nearly linear inside an instance of four devices, weak beyond."""
    inside = {count: 111 / count**0.9 for count in (1, 2, 3, 4)}
    beyond = {count: inside[4] / (1 + 0.25 * (count / 4 - 1)) for count in range(5, 33)}
    return EpochSeconds(by_devices={**inside, **beyond})


def scale_by(first: float, exponent: float, *, spread: float = 0.0) -> EpochSeconds:
    times = {count: first / count**exponent for count in (1, 2, 4, 8, 16, 32)}
    return EpochSeconds(by_devices=times, spread=spread)


def draw_job(rng: Random) -> Job:
    num_devices = rng.choice([1, 2, 4, 8])
    trials = sorted((rng.randint(1, 12) for _ in range(3)), reverse=True)
    return Job(
        stages=[JobStage(num_trials=count, num_epochs=rng.randint(1, 9)) for count in trials],
        epoch_seconds=scale_by(rng.uniform(5, 200), rng.uniform(0.3, 1.0)),
        instance=replace(
            P3_8XLARGE,
            num_devices=num_devices,
            dollars_per_hour=rng.uniform(0.5, 30),
            provision_s=rng.choice([0.0, 15.0, 120.0]),
            initialise_s=rng.choice([0.0, 15.0, 60.0]),
        ),
        max_instances=MOST_DEVICES // num_devices,
    )


if __name__ == "__main__":
    main()
