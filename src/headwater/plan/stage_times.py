"""How long a stage trains on a number of devices, by expected times: trials side by side, in turn, or as lanes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headwater.plan.jobs import SECONDS_PER_HOUR, Job, JobStage, cut_at_zero, expect_largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What trains on the same devices in a stage, one after the other."""

    epoch_s: float
    """The mean time of an epoch of each of them, not cut at zero."""
    num_rounds: int
    """How many trials or groups of lanes."""
    num_devices: int

    def count_instances(self, job: Job) -> int:
        """Return on how many instances its devices are, and so whose interruptions it suffers."""
        return job.instance.count_for(self.num_devices)

    def count_seconds(self, job: Job, stage: JobStage) -> float:
        """Return how long it trains if nothing interrupts it."""
        rounds_s = stage.num_epochs * self.epoch_s * cut_at_zero(job.epoch_seconds.spread)[0]
        return self.num_rounds * (rounds_s + job.start_up.mean_s + job.checkpoint.mean_s)

    def recover_s(self, job: Job) -> float:
        """Return what an interruption costs: another instance, its preparation, a start, and half an epoch anew."""
        instance = job.instance
        return (
            instance.provision_s
            + instance.initialise_s
            + job.start_up.mean_s
            + job.checkpoint.mean_s
            + self.epoch_s * cut_at_zero(job.epoch_seconds.spread)[0] / 2
        )


def list_chains(job: Job, stage: JobStage, num_devices: int) -> list[tuple[Chain, int]]:
    """Return what trains side by side in a stage, and how many times each, the longest first."""
    seconds = job.find_times(stage)
    if num_devices >= stage.num_trials:
        width = job.devices_per_trial(stage, num_devices)
        return [(Chain(epoch_s=seconds.at(width), num_rounds=1, num_devices=width), stage.num_trials)]
    chains = []
    for length, count in job.list_chains(stage, num_devices):
        epoch_s, num_rounds = seconds.of_chain(length)
        chains.append((Chain(epoch_s=epoch_s / num_rounds, num_rounds=num_rounds, num_devices=1), count))
    return chains


def measure_stage(job: Job, stage: JobStage, num_devices: int) -> tuple[float, float]:
    """Return how long a stage is expected to train, and for how long its devices do, added up."""
    key = (stage.num_trials, stage.num_epochs, stage.scale, num_devices)
    known = job.times.get(key)
    if known is None:
        job.times[key] = known = _measure(job, stage, num_devices)
    return known


def _measure(job: Job, stage: JobStage, num_devices: int) -> tuple[float, float]:
    chains = list_chains(job, stage, num_devices)
    num_rivals = sum(count for _, count in chains)
    device_s = sum(count * chain.num_devices * chain.count_seconds(job, stage) for chain, count in chains)
    return _expect_end(job, stage, chains[0][0], num_rivals), device_s


def _expect_end(job: Job, stage: JobStage, chain: Chain, num_rivals: int) -> float:
    """Return when the last of so many chains is expected to end: of many parts, each is nearly normal."""
    mean_s = chain.count_seconds(job, stage)
    spread = cut_at_zero(job.epoch_seconds.spread)[1] * chain.epoch_s**2
    variance = chain.num_rounds * (stage.num_epochs * spread + job.start_up.variance + job.checkpoint.variance)
    if job.instance.interruptions_per_hour:
        hours = mean_s / SECONDS_PER_HOUR
        num_interruptions = job.instance.interruptions_per_hour * hours * chain.count_instances(job)
        mean_s += num_interruptions * chain.recover_s(job)
        variance += num_interruptions * chain.recover_s(job) ** 2
    return mean_s + math.sqrt(variance) * expect_largest(num_rivals)
