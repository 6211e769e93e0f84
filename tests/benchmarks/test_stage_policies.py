"""Stages played out under each policy: the paper's example, bounds, and what no policy may do."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from benchmarks.stage_policies import Stage, find_level, find_optimum, run_stage, share_by_batch

from headwater.plan.allocation import Policy
from headwater.plan.speeds import Speeds

SLICED = Stage(seconds=(4, 4, 12, 30), num_devices=5, speeds=Speeds(max_sharing=2, max_devices=5, is_sliced=True))
LITERAL = replace(SLICED, speeds=Speeds(max_sharing=2, max_devices=5))
"""Sharing a device slows nobody down, as the paper's formula has it with its factor at one."""


@pytest.mark.parametrize(
    ("stage", "policy", "seconds"),
    [
        (SLICED, Policy.FIFO, 30),
        (SLICED, Policy.STATIC, 12),
        (SLICED, Policy.FLUID, 10),
        (SLICED, Policy.OURS, 10),
        (LITERAL, Policy.STATIC, 12),
        (LITERAL, Policy.FLUID, 10.4),
        (replace(SLICED, change_s=3), Policy.FLUID, 12),
        (replace(SLICED, change_s=3), Policy.OURS, 10),
    ],
)
def test_the_papers_example_ends_when_it_should(stage: Stage, policy: Policy, seconds: float) -> None:
    assert run_stage(stage, policy).seconds == pytest.approx(seconds)


def test_the_papers_example_cannot_end_before_ten() -> None:
    assert find_optimum(SLICED) == pytest.approx(10)


def test_four_devices_at_most_end_the_literal_example_a_little_later() -> None:
    stage = replace(LITERAL, speeds=Speeds(max_sharing=2, max_devices=4))
    assert run_stage(stage, Policy.FLUID).seconds == pytest.approx(10.5)


@pytest.mark.parametrize("policy", Policy)
def test_every_trial_ends_and_none_before_it_can(policy: Policy) -> None:
    rng = Random(11)
    for _ in range(40):
        stage = draw_stage(rng)
        outcome = run_stage(stage, policy)
        fastest = stage.speeds.factor(stage.speeds.most_devices)
        for time, end in zip(stage.seconds, outcome.ends, strict=True):
            assert end >= time * min(fastest, 1) * (1 - 1e-9)
        assert outcome.seconds >= find_level(stage.seconds, stage.num_devices, stage.speeds) * (1 - 1e-9)


def test_ours_never_ends_after_a_plain_queue() -> None:
    rng = Random(12)
    for _ in range(60):
        stage = draw_stage(rng)
        assert run_stage(stage).seconds <= run_stage(stage, Policy.FIFO).seconds * (1 + 1e-9)


def test_ours_is_near_the_best_schedule_without_changes() -> None:
    rng = Random(13)
    ratios = []
    for _ in range(25):
        stage = replace(draw_stage(rng), num_devices=rng.randint(1, 5), change_s=0.0)
        stage = replace(stage, seconds=stage.seconds[:5], speeds=replace(stage.speeds, max_sharing=1))
        ratios.append(run_stage(stage).seconds / find_optimum(stage))
    assert sum(ratios) / len(ratios) < 1.02


def test_a_change_that_costs_more_than_it_gains_is_not_made() -> None:
    for policy in (Policy.FLUID, Policy.OURS):
        assert run_stage(replace(SLICED, change_s=1000), policy).num_changes == 0


@pytest.mark.parametrize("policy", [Policy.FLUID, Policy.OURS])
def test_no_more_is_changed_than_every_trial_at_every_end(policy: Policy) -> None:
    rng = Random(14)
    for _ in range(40):
        stage = draw_stage(rng)
        assert run_stage(stage, policy).num_changes <= len(stage.seconds) ** 2


def test_static_shares_end_within_twice_the_mean_load_and_the_longest_shared_trial() -> None:
    """What can be shown of the paper's rule where a shared device is divided and several scale in full."""
    rng = Random(15)
    for _ in range(60):
        num_devices, max_sharing = rng.randint(1, 12), rng.randint(1, 4)
        speeds = Speeds(max_sharing=max_sharing, max_devices=num_devices, is_sliced=True)
        stage = replace(draw_stage(rng), num_devices=num_devices, speeds=speeds)
        load_s = sum(stage.seconds) / num_devices
        small = [time * max_sharing for time in stage.seconds if time < load_s]
        assert run_stage(stage, Policy.STATIC).seconds <= 2 * load_s + max(small, default=0.0) + 1e-9


def test_no_trials_take_no_time() -> None:
    for policy in Policy:
        assert run_stage(Stage(seconds=(), num_devices=3), policy).seconds == 0


def test_the_level_is_the_mean_load_where_nothing_limits_it() -> None:
    assert find_level(SLICED.seconds, 5, Speeds(max_devices=5)) == pytest.approx(10)


def test_the_level_is_the_longest_trial_where_devices_abound() -> None:
    assert find_level([8, 1, 1], 100, Speeds(max_devices=4)) == pytest.approx(2)


def test_sharing_that_gets_more_done_lowers_the_level() -> None:
    alone, shared = (find_level([1.0] * 8, 2, Speeds(sharing=1.1, max_sharing=count)) for count in (1, 4))
    assert alone == pytest.approx(4)
    assert shared == pytest.approx(4 * 1.1**3 / 4)


def test_by_batch_size_times_trials_each_kind_has_one_device_and_none_is_left_over() -> None:
    assert share_by_batch([128, 512], [8, 8], 10) == [3, 7]
    assert share_by_batch([32, 32, 64], [4, 4, 4], 8) == [2, 2, 4]
    assert share_by_batch([128, 512], [8, 8], 1) == [1, 1]


def draw_stage(rng: Random) -> Stage:
    return Stage(
        seconds=tuple(rng.expovariate(0.1) + 0.1 for _ in range(rng.randint(1, 20))),
        num_devices=rng.randint(1, 12),
        speeds=Speeds(
            sharing=rng.uniform(1, 1.6),
            scaling=rng.uniform(1, 1.3),
            max_sharing=rng.randint(1, 4),
            max_devices=rng.randint(1, 8),
        ),
        change_s=rng.choice([0.0, 0.5]),
    )
