"""Jobs that the tests of elastic plans share."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage


def measure_in_nodes(count: int) -> float:
    """Return the seconds of an epoch: nearly linear inside an instance of four devices, weak beyond."""
    return 111 / count**0.9 if count <= 4 else 111 / 4**0.9 / (1 + 0.25 * (count / 4 - 1))


def list_stages(*pairs: tuple[int, int]) -> list[JobStage]:
    return [JobStage(num_trials=trials, num_epochs=epochs) for trials, epochs in pairs]


P3_8XLARGE = Instance(num_devices=4, dollars_per_hour=12.24, provision_s=15, initialise_s=15)
HALVING = Job(
    stages=list_stages((32, 1), (10, 3), (3, 9), (1, 37)),
    epoch_seconds=EpochSeconds(by_devices={count: measure_in_nodes(count) for count in range(1, 65)}),
    instance=P3_8XLARGE,
)
"""Successive halving of 32 trials, reduced by three, up to 50 epochs."""


MOST_DEVICES = 16


def draw_job(rng: Random, num_stages: int = 3, widths: Sequence[int] = (1, 2, 4, 8)) -> Job:
    """Draw a small job, on at most `MOST_DEVICES`, whose plans can all be tried."""
    exponent = rng.uniform(0.3, 1.0)
    first = rng.uniform(5, 200)
    num_devices = rng.choice([1, 2, 4, 8])
    trials = sorted((rng.randint(1, 12) for _ in range(num_stages)), reverse=True)
    return Job(
        stages=list_stages(*((count, rng.randint(1, 9)) for count in trials)),
        epoch_seconds=EpochSeconds(by_devices={count: first / count**exponent for count in widths}),
        instance=Instance(
            num_devices=num_devices,
            dollars_per_hour=rng.uniform(0.5, 30),
            provision_s=rng.choice([0.0, 15.0, 120.0]),
            initialise_s=rng.choice([0.0, 15.0, 60.0]),
            launch_dollars=rng.choice([0.0, 0.0, 1.5]),
        ),
        max_instances=MOST_DEVICES // num_devices,
    )
