"""Elastic plans against static and naive ones, in the shape of the tables of the RubberBand paper; nothing is launched.

    python benchmarks/rubberband.py [--instances 200] [--seed 0] [--spot FOLDER]

All numbers are predictions by the planner's own simulator, with the paper's jobs and prices; the same on any machine.
The paper does not publish how its models scale. Everywhere here, an epoch on g GPUs of one machine takes 1 / g^0.9 of
its time on one, and each further machine adds a quarter of one machine's speed, measured up to 32 GPUs.
`--spot` adds the table of `benchmarks/spot.py` on the traces in a folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from time import process_time

from headwater.plan.catalogue import load_catalogue
from headwater.plan.choice import choose_plan, keep_slack, name_rent
from headwater.plan.elastic import Limits, Prediction, plan_fastest, plan_greedily, plan_naively, plan_static, predict
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import Billing, EpochSeconds, Instance, Job, JobStage

P3_8XLARGE = Instance(name="p3.8xlarge", num_devices=4, dollars_per_hour=12.24, provision_s=15, initialise_s=15)
SPOT = replace(
    load_catalogue()["p3.8xlarge"].rent(is_spot=True), provision_s=15.0, initialise_s=15.0, name="p3.8xlarge"
)
MOST_DEVICES = 16
TIGHT = (1.1, 1.25, 1.5)
"""Deadlines, as multiples of what the fastest cluster of one size takes."""
LANES = {2: 1.2, 4: 1.5, 8: 2.3, 16: 4.0}
"""How many times longer an epoch of so many lanes takes than one of a trial alone: assumed, not measured on a GPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spot", type=Path, default=None)
    options = parser.parse_args()
    print_deadlines()
    print_schedule()
    print_tightness()
    print_models()
    print_stragglers()
    print_data_prices()
    print_sizes()
    print_initialisation()
    print_gaps(options.instances, Random(options.seed))
    print_planning_time()
    if options.spot is not None:
        from spot import print_spot_of

        print_spot_of(options.spot)


def print_deadlines() -> None:
    print("## Deadlines: successive halving of 32 trials up to 50 epochs, 111 s an epoch (Table 2)\n")
    print("| deadline | static | naive | greedy | exact | saved | static / exact | lanes too | spot too | both |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    job = make_halving(32, 1, 50, 3, scale_in_nodes(111.0))
    fused, spot = add_lanes(job), replace(job, instance=SPOT)
    for minutes in (12, 13, 14, 16, 20, 25, 30, 40):
        limits = Limits(deadline_s=60 * minutes)
        row = [plan(job, limits) for plan in (plan_static, plan_naively, plan_greedily, plan_exactly)]
        more = [plan_exactly(one, keep_slack(one, limits)) for one in (fused, spot, add_lanes(spot))]
        saved, ratio = compare(row[0], row[3])
        print(f"| {minutes} min | {' | '.join(map(price, row))} | {saved} | {ratio} | {' | '.join(map(price, more))} |")
    print("\nLanes are assumed: 2 trials as one take 1.2 times as long as one, 16 take 4 times; not measured on a GPU.")
    print(f"Spot: ${SPOT.dollars_per_hour:.2f} an hour, {SPOT.interruptions_per_hour:g} interruptions an hour.")


def print_schedule() -> None:
    print("\n## The plan for 20 minutes, by stages (Table 3)\n")
    print("| epochs | trials | GPUs per trial | instances |\n|---|---|---|---|")
    job = make_halving(32, 1, 50, 3, scale_in_nodes(111.0))
    plan = plan_exactly(job, Limits(deadline_s=1200))
    assert plan is not None
    begin = 0
    for stage, devices, instances in zip(job.stages, plan.devices, plan.instances, strict=True):
        width = job.devices_per_trial(stage, devices)
        print(f"| {begin}-{begin + stage.num_epochs} | {stage.num_trials} | {width} | {instances} |")
        begin += stage.num_epochs


def print_tightness() -> None:
    """Show where the aim of 34 % is within reach: near the fastest cluster of one size, however machines scale."""
    print(
        "\n## How tight a deadline is: the job of Table 2, by what a further machine adds and how long an epoch takes\n"
    )
    print("| adds | epoch | fastest of one size | 20 min: static | exact | saved ", end="")
    print("| " + " | ".join(f"{factor:g} times the fastest: static | exact | saved" for factor in TIGHT) + " |")
    print("|---" * (6 + 3 * len(TIGHT)) + "|")
    for share, seconds in ((0.1, 111.0), (0.25, 111.0), (0.5, 111.0), (1.0, 111.0), (0.25, 160.0), (0.25, 200.0)):
        job = make_halving(32, 1, 50, 3, scale_in_nodes(seconds, share=share))
        fastest_s = find_fastest_static(job).seconds
        cells = [f"{share:g}", f"{seconds:g} s", f"{fastest_s / 60:.1f} min"]
        for deadline_s in (1200.0, *(factor * fastest_s for factor in TIGHT)):
            static, exact = (plan(job, Limits(deadline_s=deadline_s)) for plan in (plan_static, plan_exactly))
            cells += [price(static), price(exact), compare(static, exact)[0]]
        print(f"| {' | '.join(cells)} |", flush=True)
    print("\nEvery plan under *exact* is the best there is at these times, by `plan_exactly`, so less cannot be paid.")


def find_fastest_static(job: Job) -> Prediction:
    sizes = sorted({count for stage in job.stages for count in job.list_allocations(stage)})
    return min((predict(job, [size] * len(job.stages)) for size in sizes), key=lambda plan: plan.seconds)


def print_models() -> None:
    print("\n## Three models, 20 minutes (Table 4)\n")
    print("| model | epoch on one GPU | static | naive | exact | saved | static / exact | lanes too |")
    print("|---|---|---|---|---|---|---|---|")
    for name, seconds in (("ResNet-101", 111.0), ("ResNet-152", 160.0), ("BERT", 140.0)):
        job = make_halving(32, 1, 50, 3, scale_in_nodes(seconds))
        limits = Limits(deadline_s=1200)
        row = [plan(job, limits) for plan in (plan_static, plan_naively, plan_exactly)]
        saved, ratio = compare(row[0], row[2])
        cells = [name, f"{seconds:g} s", *map(price, row), saved, ratio, price(plan_exactly(add_lanes(job), limits))]
        print(f"| {' | '.join(cells)} |")
    print("\nThe times of the second and third model are assumed; the paper gives none.")


def print_stragglers() -> None:
    print("\n## Stragglers and billing: 64 trials up to 508 epochs, 4 s an epoch, 20 min (Figure 9)\n")
    print_head("deviation of an epoch", "billing")
    instance = replace(P3_8XLARGE, initialise_s=0.0)
    for deviation, billing in product((1.0, 2.0, 4.0, 10.0), Billing):
        job = make_halving(64, 4, 508, 2, scale_in_nodes(4.0, spread=deviation / 4))
        job = replace(job, billing=billing, instance=instance)
        print_row([f"{deviation:g} s", str(billing)], job, Limits(deadline_s=1200))
    print("\nAn epoch takes no less than nothing, so a deviation of 10 s raises its mean from 4 s to 6.3 s.")


def print_data_prices() -> None:
    print("\n## What launching costs: the same job, 20 min (Figure 10)\n")
    print_head("data", "dollars per GB")
    job = make_halving(64, 4, 508, 2, scale_in_nodes(4.0))
    for gigabytes, dollars in product((0.15, 150.0), (0.0, 0.01, 0.04, 0.16)):
        instance = replace(P3_8XLARGE, launch_dollars=gigabytes * dollars)
        size = f"{gigabytes:g} GB"
        print_row([size, f"{dollars:.2f}"], replace(job, instance=instance), Limits(deadline_s=1200))


def print_sizes() -> None:
    print("\n## Numbers of trials: up to 508 epochs, 4 s an epoch, 20 min (Figure 11)\n")
    print_head("trials", "billing")
    for num_trials, billing in product((16, 32, 64, 128, 256, 512), Billing):
        job = replace(make_halving(num_trials, 4, 508, 2, scale_in_nodes(4.0)), billing=billing)
        print_row([str(num_trials), str(billing)], job, Limits(deadline_s=1200))


def print_initialisation() -> None:
    print("\n## Initialisation and deadline: 512 trials up to 4,096 epochs, 12 s an epoch (Figure 12)\n")
    print_head("initialise", "deadline")
    for seconds, minutes in product((1, 10, 100), (90, 100, 120, 160)):
        instance = replace(P3_8XLARGE, initialise_s=float(seconds))
        job = replace(make_halving(512, 4, 4096, 2, scale_in_nodes(12.0)), instance=instance)
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
    names = ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "g5.12xlarge", "p4d.24xlarge")
    offers = load_catalogue()
    job = make_halving(512, 4, 4096, 2, scale_in_nodes(11.1))
    jobs = [replace(job, instance=offers[name].rent()) for name in names]
    limits = Limits(deadline_s=4 * 3600)
    begin = process_time()
    greedy = [plan_greedily(one, limits) for one in jobs]
    greedy_s = process_time() - begin
    jobs = [replace(one) for one in jobs]  # which forgets what was worked out
    begin = process_time()
    chosen, _ = choose_plan(jobs, limits)
    chosen_s = process_time() - begin
    assert chosen is not None
    print(f"\n## {len(job.stages)} stages over {len(names)} instance types, 4 hours\n")
    print(
        f"Greedy plans for all types took {greedy_s:.1f} s of CPU time; with the static, naive and exact plans of "
        f"those in reach of the best, {chosen_s:.1f} s. Best is {name_rent(chosen.job)} at {price(chosen.best)}; "
        f"greedy plans cost {', '.join(map(price, greedy))} (equal speed of all GPUs assumed)."
    )


def print_head(*labels: str) -> None:
    print(f"| {' | '.join(labels)} | static | naive | elastic | saved | static / elastic | lanes too |")
    print("|---" * (len(labels) + 6) + "|")


def print_row(labels: Sequence[str], job: Job, limits: Limits) -> None:
    row = [plan(job, limits) for plan in (plan_static, plan_naively, plan_greedily)]
    fused = plan_greedily(add_lanes(job), limits)
    print(f"| {' | '.join([*labels, *map(price, row), *compare(row[0], row[2]), price(fused)])} |", flush=True)


def compare(static: Prediction | None, best: Prediction | None) -> tuple[str, str]:
    """Return what a plan saves against the static one, and how many times cheaper it is."""
    if static is None or best is None:
        return "", ""
    assert best.cost_dollars <= static.cost_dollars + 1e-9
    saved = 1 - best.cost_dollars / static.cost_dollars
    return f"{100 * saved:.0f} %", f"{static.cost_dollars / best.cost_dollars:.2f}"


def add_lanes(job: Job) -> Job:
    """Let the planner know that trials can train as one."""
    by_lanes = {count: factor * job.epoch_seconds.at(1) for count, factor in LANES.items()}
    return replace(job, epoch_seconds=replace(job.epoch_seconds, by_lanes=by_lanes))


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


def scale_in_nodes(first: float, *, spread: float = 0.0, share: float = 0.25) -> EpochSeconds:
    """Nearly linear inside an instance of four devices, weak beyond."""
    inside = {count: first / count**0.9 for count in (1, 2, 3, 4)}
    beyond = {count: inside[4] / (1 + share * (count / 4 - 1)) for count in range(5, 33)}
    return EpochSeconds(by_devices={**inside, **beyond}, spread=spread)


def scale_by(first: float, exponent: float) -> EpochSeconds:
    return EpochSeconds(by_devices={count: first / count**exponent for count in (1, 2, 4, 8, 16, 32)})


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
