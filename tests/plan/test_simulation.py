"""The graph of a plan, and what its draws come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean, pvariance

import pytest
from tests.plan.jobs import HALVING, draw_job, list_stages

from headwater.plan.elastic import predict
from headwater.plan.jobs import Billing, Duration, cut_at_zero
from headwater.plan.simulation import Step, build_graph, forecast


def test_a_shrinking_plan_has_one_launch_and_every_trial_once() -> None:
    graph = build_graph(HALVING, (32, 20, 12, 8))
    assert len(graph) == 59
    assert Counter(node.step for node in graph) == {
        Step.SCALE: 1,
        Step.INITIALISE: 8,
        Step.TRAIN: 32 + 10 + 3 + 1,
        Step.SYNC: 4,
    }


def test_one_device_makes_a_chain_of_all_trials() -> None:
    graph = build_graph(replace(HALVING, stages=list_stages((32, 1))), [1])
    trials = [place for place, node in enumerate(graph) if node.step is Step.TRAIN]
    assert all(graph[place].before == (place - 1,) for place in trials[1:])


@pytest.mark.parametrize("billing", Billing)
def test_certain_times_come_to_what_is_predicted(billing: Billing) -> None:
    rng = Random(5)
    for _ in range(100):
        job = replace(draw_job(rng), billing=billing)
        devices = [rng.choice(job.list_allocations(stage)) for stage in job.stages]
        plain, drawn = predict(job, devices), forecast(job, devices)
        assert drawn.seconds == pytest.approx(plain.seconds)
        assert drawn.cost_dollars == pytest.approx(plain.cost_dollars)


def test_uncertain_times_come_with_a_range_and_the_same_seed_with_the_same_one() -> None:
    job = replace(HALVING, epoch_seconds=replace(HALVING.epoch_seconds, spread=0.2))
    first, again = (forecast(job, (32, 20, 12, 4), num_samples=50, seed=1) for _ in range(2))
    assert first == again
    assert first.seconds_range[0] < first.seconds < first.seconds_range[1]
    assert first.cost_range[0] < first.cost_dollars < first.cost_range[1]


def test_the_chance_to_be_in_time_is_the_share_of_draws_that_are() -> None:
    job = replace(HALVING, epoch_seconds=replace(HALVING.epoch_seconds, spread=0.2))
    mean = forecast(job, (32, 20, 12, 4)).seconds
    chances = [forecast(job, (32, 20, 12, 4), deadline).chance_in_time for deadline in (1.0, mean, 2 * mean)]
    assert chances[0] == 0
    assert chances[1] == pytest.approx(0.5, abs=0.15)
    assert chances[2] == 1


DEVICES = (32, 20, 12, 4)


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("billing", Billing)
def test_what_is_expected_of_uneven_epochs_is_what_is_drawn(spread: float, billing: Billing) -> None:
    seconds = replace(HALVING.epoch_seconds, spread=spread)
    job = replace(HALVING, stages=list_stages((32, 8), (10, 24)), epoch_seconds=seconds, billing=billing)
    expected, drawn = predict(job, (32, 20)), forecast(job, (32, 20), num_samples=300)
    assert expected.seconds == pytest.approx(drawn.seconds, rel=0.03)
    assert expected.cost_dollars == pytest.approx(drawn.cost_dollars, rel=0.03)


def test_an_epoch_takes_no_less_than_nothing_and_so_more_than_its_mean_where_times_scatter_widely() -> None:
    mean, variance = cut_at_zero(2.0)
    rng = Random(1)
    draws = [max(0.0, rng.gauss(1.0, 2.0)) for _ in range(40_000)]
    assert mean == pytest.approx(fmean(draws), rel=0.02)
    assert variance == pytest.approx(pvariance(draws), rel=0.03)
    assert mean > 1.3


def test_every_stage_starts_its_trials_and_saves_them() -> None:
    job = replace(HALVING, start_up=Duration(7.0), checkpoint=Duration(3.0))
    assert predict(job, DEVICES).seconds == pytest.approx(predict(HALVING, DEVICES).seconds + 4 * 10)
    assert forecast(job, DEVICES).seconds == pytest.approx(predict(job, DEVICES).seconds)
    in_turn = replace(job, stages=list_stages((32, 1)))
    assert predict(in_turn, [8]).seconds == pytest.approx(30 + 4 * (111 + 10))


def test_all_wait_for_the_slowest_of_the_new_instances() -> None:
    instance = replace(HALVING.instance, initialise_spread=0.5, provision_spread=0.2)
    job = replace(HALVING, instance=instance)
    expected, drawn = predict(job, DEVICES), forecast(job, DEVICES, num_samples=400)
    assert expected.seconds > predict(HALVING, DEVICES).seconds
    assert expected.seconds == pytest.approx(drawn.seconds, rel=0.01)
    assert expected.cost_dollars == pytest.approx(drawn.cost_dollars, rel=0.02)


def test_interruptions_take_time_and_money() -> None:
    instance = replace(HALVING.instance, interruptions_per_hour=0.5, launch_dollars=0.2)
    calm = replace(HALVING, instance=replace(instance, interruptions_per_hour=0))
    job = replace(HALVING, instance=instance)
    expected, drawn = predict(job, DEVICES), forecast(job, DEVICES, num_samples=500)
    assert expected.seconds > predict(calm, DEVICES).seconds
    assert expected.cost_dollars > predict(calm, DEVICES).cost_dollars
    assert expected.seconds == pytest.approx(drawn.seconds, rel=0.05)
    assert expected.cost_dollars == pytest.approx(drawn.cost_dollars, rel=0.05)
