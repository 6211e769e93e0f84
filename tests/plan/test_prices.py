"""What a search costs at the least by each of many deadlines."""

from __future__ import annotations

from itertools import pairwise

from headwater.plan.elastic import Limits, plan_fastest, plan_greedily, plan_static
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.plan.prices import list_deadlines, trace_prices

JOB = Job(
    stages=[JobStage(num_trials=16, num_epochs=1), JobStage(num_trials=4, num_epochs=4)],
    epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
    instance=Instance(num_devices=1, dollars_per_hour=3.06, initialise_s=30),
)


def test_deadlines_go_from_the_fastest_plan_beyond_the_one_that_was_asked_for() -> None:
    fastest_s = plan_fastest(JOB).seconds
    deadlines = list_deadlines(JOB, marked_s=20 * fastest_s)
    assert deadlines[0] >= fastest_s
    assert deadlines[-1] > 20 * fastest_s
    assert any(abs(one - 20 * fastest_s) < 1e-3 for one in deadlines)
    assert deadlines == sorted(deadlines)


def test_later_deadlines_never_cost_more_and_each_price_is_that_of_a_plan() -> None:
    prices = trace_prices(JOB, list_deadlines(JOB, marked_s=600.0))
    assert all(later <= earlier for (_, earlier), (_, later) in pairwise(prices))
    assert prices[0][1] > prices[-1][1]
    for deadline_s, price in prices:
        plan = plan_greedily(JOB, Limits(deadline_s=deadline_s))
        assert plan is not None
        assert price <= plan.cost_dollars


def test_a_deadline_that_no_plan_keeps_has_no_price() -> None:
    fastest_s = plan_fastest(JOB).seconds
    assert trace_prices(JOB, [fastest_s / 2]) == ()
    (point,) = trace_prices(JOB, [fastest_s / 2, 4 * fastest_s], plan_static)
    assert point[0] == 4 * fastest_s
