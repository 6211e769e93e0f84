"""How soon stages end under each policy of allocating devices, against a bound that none can beat.

    python benchmarks/waterfill.py [--instances 1000] [--seed 0]

Random stages: 1 to 40 trials on 1 to 16 devices, times uniform, exponential or heavy-tailed; what sharing and scaling
cost is drawn too. Small ones are also solved exactly, for schedules in which no trial's devices change.

Then devices for kinds of trials that cannot train as one: 2 to 5 kinds on up to 16 devices. What an epoch takes follows
from the batch size along a line through the two times that the paper on Hydro shows (eight lanes, 50 epochs: 773 s with
batches of 128, 370 s of 512); numbers of trials, epochs left, how much lanes gain and how many fit are drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from statistics import fmean

from stage_policies import Stage, find_level, find_optimum, run_stage, share_by_batch

from headwater.plan.allocation import Policy
from headwater.plan.buckets import Bucket, choose_cuts, predict_end, share_devices
from headwater.plan.speeds import Speeds, count_fitting_lanes

TOY = (4.0, 4.0, 12.0, 30.0)
BATCH_SIZES = (32, 64, 128, 256, 512)
STEP_S, EXAMPLES_S = 403 / (1 / 128 - 1 / 512), 773 - 403 * 4 / 3
"""What eight lanes take in 50 epochs: for all steps, times the batch size, and for all examples."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print_toy()
    rng = Random(options.seed)
    print_ratios([draw_stage(rng) for _ in range(options.instances)])
    print_optima([draw_stage(rng, most_trials=6, most_devices=6) for _ in range(options.instances // 5)])
    print_kinds(rng, options.instances)


def print_toy() -> None:
    print("The paper's example: trials of 4, 4, 12, 30 s on 5 devices\n")
    print("| policy | a shared device is divided | sharing slows nobody down |\n|---|---|---|")
    for policy in Policy:
        ends = [
            run_stage(Stage(seconds=TOY, num_devices=5, speeds=speeds), policy).seconds
            for speeds in (Speeds(max_sharing=2, max_devices=5, is_sliced=is_sliced) for is_sliced in (True, False))
        ]
        print(f"| {policy} | {ends[0]:.1f} | {ends[1]:.1f} |")


def print_ratios(stages: list[Stage]) -> None:
    bounds = [find_level(stage.seconds, stage.num_devices, stage.speeds) for stage in stages]
    first = [run_stage(stage, Policy.FIFO).seconds for stage in stages]
    print(f"\n{len(stages)} random stages: end over the lower bound\n")
    print("| policy | mean | worst | later than fifo | changes per stage |\n|---|---|---|---|---|")
    for policy in Policy:
        outcomes = [run_stage(stage, policy) for stage in stages]
        ratios = [outcome.seconds / bound for outcome, bound in zip(outcomes, bounds, strict=True)]
        later = sum(one.seconds > fifo * (1 + 1e-9) for one, fifo in zip(outcomes, first, strict=True))
        changes = fmean(outcome.num_changes for outcome in outcomes)
        print(f"| {policy} | {fmean(ratios):.3f} | {max(ratios):.2f} | {later} | {changes:.2f} |")


def print_optima(stages: list[Stage]) -> None:
    optima = [find_optimum(stage) for stage in stages]
    print(f"\n{len(stages)} small stages (at most 6 trials, 6 devices): end over the best schedule without changes or")
    print("sharing; below 1 where changing or sharing gains\n")
    print("| policy | mean | worst |\n|---|---|---|")
    for policy in Policy:
        ratios = [run_stage(stage, policy).seconds / best for stage, best in zip(stages, optima, strict=True)]
        print(f"| {policy} | {fmean(ratios):.3f} | {max(ratios):.2f} |")


def print_kinds(rng: Random, num_instances: int) -> None:
    ends: dict[str, list[float]] = {}
    for _ in range(num_instances):
        batch_sizes = rng.sample(BATCH_SIZES, rng.randint(2, len(BATCH_SIZES)))
        buckets = [draw_bucket(rng, size) for size in batch_sizes]
        num_devices = rng.randint(len(buckets), 16)
        shares = {
            "B x N": share_by_batch(batch_sizes, [bucket.num_lanes for bucket in buckets], num_devices),
            "evenly": [
                num_devices // len(buckets) + (place < num_devices % len(buckets)) for place in range(len(buckets))
            ],
            "by predicted time": share_devices(buckets, num_devices),
        }
        for way, counts in shares.items():
            end_s = max(bucket.find_end(count) for bucket, count in zip(buckets, counts, strict=True))
            ends.setdefault(way, []).append(end_s)
        for way, cuts in (
            ("all kinds on all devices", [num_devices] * len(buckets)),
            ("whichever is predicted to end first", choose_cuts(buckets, num_devices)),
        ):
            ends.setdefault(way, []).append(predict_end(buckets, cuts, num_devices))
    *_, last = ends.values()
    print(f"\n{num_instances} random sets of kinds: end over that of the last row\n")
    print("| devices to kinds | mean | worst | earlier than the last row |\n|---|---|---|---|")
    for way, found in ends.items():
        ratios = [end / best for end, best in zip(found, last, strict=True)]
        earlier = sum(ratio < 1 - 1e-9 for ratio in ratios)
        print(f"| {way} | {fmean(ratios):.3f} | {max(ratios):.2f} | {earlier} |")


def draw_bucket(rng: Random, batch_size: int) -> Bucket:
    lanes_s = rng.randint(1, 50) / 50 * (EXAMPLES_S + STEP_S / batch_size)
    gain = rng.uniform(0, 0.9)
    one_bytes = rng.uniform(2, 20)
    return Bucket(
        num_lanes=rng.randint(1, 64),
        most_lanes=count_fitting_lanes(one_bytes, one_bytes * rng.uniform(1.1, 1.9), 80),
        seconds=lambda num_lanes: lanes_s * (gain + (1 - gain) * num_lanes / 8),
    )


def draw_stage(rng: Random, most_trials: int = 40, most_devices: int = 16) -> Stage:
    draws: list[Callable[[], float]] = [
        lambda: rng.uniform(1, 10),
        lambda: rng.expovariate(0.1) + 0.1,
        lambda: rng.paretovariate(1.2),
    ]
    draw = rng.choice(draws)
    return Stage(
        seconds=tuple(draw() for _ in range(rng.randint(1, most_trials))),
        num_devices=rng.randint(1, most_devices),
        speeds=Speeds(
            sharing=rng.uniform(1, 1.6),
            scaling=rng.uniform(1, 1.3),
            max_sharing=rng.randint(1, 4),
            max_devices=rng.randint(1, 8),
        ),
        change_s=rng.choice([0.0, 0.2]),
    )


if __name__ == "__main__":
    main()
