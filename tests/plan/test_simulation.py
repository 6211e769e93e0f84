"""The graph of a plan, and what its draws come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.plan.jobs import HALVING, draw_job, list_stages

from headwater.plan.elastic import predict
from headwater.plan.jobs import Billing
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
