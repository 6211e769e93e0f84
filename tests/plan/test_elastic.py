"""Elastic plans: what they cost, and that nothing better was overlooked."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from tests.plan.jobs import HALVING, MOST_DEVICES, P3_8XLARGE, draw_job, list_stages, measure_in_nodes

from headwater.errors import PlanError
from headwater.plan.elastic import Limits, Prediction, plan_fastest, plan_greedily, plan_naively, plan_static, predict
from headwater.plan.frontier import plan_exactly, trace_prices
from headwater.plan.jobs import Billing, EpochSeconds, Instance, Job, JobStage
from headwater.plan.simulation import forecast

LINEAR = EpochSeconds(by_devices={count: 100 / count for count in (1, 2, 4, 8)})


@pytest.mark.parametrize(
    ("minutes", "static", "elastic"), [(20, (23.85, (24,) * 4), 19.75), (30, (17.89, (12,) * 4), 13.40)]
)
def test_a_deadline_costs_what_was_worked_out_by_hand(
    minutes: int, static: tuple[float, tuple[int, ...]], elastic: float
) -> None:
    limits = Limits(deadline_s=60 * minutes)
    one_size, exact, greedy = (make(HALVING, limits) for make in (plan_static, plan_exactly, plan_greedily))
    assert one_size is not None
    assert exact is not None
    assert greedy is not None
    assert (round(one_size.cost_dollars, 2), one_size.devices) == static
    assert round(exact.cost_dollars, 2) == elastic
    assert round(greedy.cost_dollars, 2) == elastic


def test_the_plan_for_thirty_minutes_shrinks_with_its_stages() -> None:
    plan = plan_exactly(HALVING, Limits(deadline_s=1800))
    assert plan is not None
    assert plan.devices == (32, 20, 12, 4)
    assert plan.instances == (8, 5, 3, 1)
    assert plan.seconds <= 1800


def test_few_devices_train_trials_in_turn() -> None:
    job = replace(HALVING, stages=list_stages((32, 1)), instance=replace(P3_8XLARGE, num_devices=1))
    assert predict(job, [1]).seconds == pytest.approx(30 + 32 * 111)
    assert predict(job, [12]).seconds == pytest.approx(30 + 3 * 111)


def test_lanes_are_planned_where_they_are_faster_than_turns() -> None:
    lanes = replace(HALVING.epoch_seconds, by_lanes={16: 300.0, 32: 500.0})
    job = replace(HALVING, stages=list_stages((32, 1)), epoch_seconds=lanes)
    assert predict(job, [1]).seconds == pytest.approx(30 + 500)
    assert predict(job, [2]).seconds == pytest.approx(30 + 300)
    assert predict(job, [16]).seconds == pytest.approx(30 + 2 * 111)
    cheapest = plan_exactly(job, Limits())
    assert cheapest is not None
    assert cheapest.instances == (1,)


def test_an_instance_is_charged_for_its_minimum() -> None:
    instance = Instance(num_devices=1, dollars_per_hour=3600, initialise_s=5)
    job = Job(stages=list_stages((1, 1)), epoch_seconds=EpochSeconds(by_devices={1: 10.0}), instance=instance)
    assert predict(job, [1]).cost_dollars == pytest.approx(60)
    assert predict(replace(job, instance=replace(instance, minimum_s=0)), [1]).cost_dollars == pytest.approx(15)


def test_instances_that_are_there_wait_for_new_ones() -> None:
    instance = Instance(num_devices=1, dollars_per_hour=3600, provision_s=100, initialise_s=50, minimum_s=0)
    job = Job(stages=list_stages((1, 1), (2, 1)), epoch_seconds=EpochSeconds(by_devices={1: 10.0}), instance=instance)
    plan = predict(job, [1, 2])
    assert plan.seconds == 150 + 10 + 150 + 10
    assert plan.cost_dollars == pytest.approx((50 + 10) + (100 + 50 + 10) + (50 + 10))


def test_each_launch_pays_for_its_data() -> None:
    job = replace(HALVING, instance=replace(P3_8XLARGE, launch_dollars=1.5))
    devices = (32, 20, 12, 4)
    assert predict(job, devices).cost_dollars == pytest.approx(predict(HALVING, devices).cost_dollars + 8 * 1.5)


def test_functions_never_cost_more_than_instances() -> None:
    rng = Random(1)
    for _ in range(50):
        job = draw_job(rng)
        devices = [rng.choice(job.list_allocations(stage)) for stage in job.stages]
        by_function = predict(replace(job, billing=Billing.FUNCTION), devices)
        assert by_function.cost_dollars <= predict(job, devices).cost_dollars + 1e-9


def test_both_billings_agree_where_every_device_trains_all_the_time() -> None:
    instance = Instance(num_devices=4, dollars_per_hour=12.24, minimum_s=0)
    job = Job(stages=list_stages((8, 3)), epoch_seconds=EpochSeconds(by_devices={1: 100.0}), instance=instance)
    by_function = predict(replace(job, billing=Billing.FUNCTION), [8])
    assert by_function.cost_dollars == pytest.approx(predict(job, [8]).cost_dollars)


def test_doubled_times_double_time_and_price() -> None:
    instance = replace(P3_8XLARGE, minimum_s=0)
    slow = replace(instance, provision_s=30, initialise_s=30)
    times = {count: 2 * measure_in_nodes(count) for count in range(1, 65)}
    once = predict(replace(HALVING, instance=instance), (32, 20, 12, 4))
    twice = predict(replace(HALVING, instance=slow, epoch_seconds=EpochSeconds(by_devices=times)), (32, 20, 12, 4))
    assert twice.seconds == pytest.approx(2 * once.seconds)
    assert twice.cost_dollars == pytest.approx(2 * once.cost_dollars)


@pytest.mark.parametrize("billing", Billing)
def test_the_exact_plan_is_the_best_of_all_plans(billing: Billing) -> None:
    rng = Random(7)
    for _ in range(6):
        job = replace(draw_job(rng), billing=billing)
        every = [predict(job, devices) for devices in product(*(range(1, MOST_DEVICES + 1) for _ in job.stages))]
        deadline = plan_fastest(job).seconds * rng.uniform(1.0, 3.0)
        for limits in (Limits(deadline_s=deadline), Limits(budget_dollars=_median_cost(every)), Limits()):
            best = min((plan for plan in every if limits.admit(plan)), key=limits.rank)
            exact = plan_exactly(job, limits)
            assert exact is not None
            assert limits.rank(exact)[0] == pytest.approx(limits.rank(best)[0], rel=1e-9)


def test_the_greedy_plan_is_never_worse_than_one_size() -> None:
    rng = Random(3)
    for _ in range(60):
        job = draw_job(rng, num_stages=4)
        limits = Limits(deadline_s=plan_fastest(job).seconds * rng.uniform(1.0, 3.0))
        static, greedy = plan_static(job, limits), plan_greedily(job, limits)
        assert greedy is not None
        assert static is None or greedy.cost_dollars <= static.cost_dollars + 1e-9


def test_where_scaling_is_free_one_size_is_as_good_as_any() -> None:
    instance = Instance(num_devices=1, dollars_per_hour=10, minimum_s=0)
    job = Job(stages=list_stages((8, 2), (4, 4), (2, 8)), epoch_seconds=LINEAR, instance=instance)
    limits = Limits(deadline_s=plan_fastest(job).seconds * 2)
    static, exact = plan_static(job, limits), plan_exactly(job, limits)
    assert static is not None
    assert exact is not None
    assert exact.cost_dollars == pytest.approx(static.cost_dollars)


def test_a_longer_deadline_is_never_dearer() -> None:
    curve = trace_prices(HALVING, [600, 900, 1200, 1800, 3600, 7200])
    prices = [plan.cost_dollars for _, plan in curve]
    assert len(prices) >= 4
    assert prices == sorted(prices, reverse=True)


def test_a_limit_that_cannot_be_kept_has_no_plan() -> None:
    for make in (plan_static, plan_naively, plan_greedily, plan_exactly):
        assert make(HALVING, Limits(deadline_s=60)) is None


@pytest.mark.parametrize("limits", [Limits(budget_dollars=0.0), Limits(deadline_s=0.0)])
def test_where_nothing_is_left_there_is_no_plan(limits: Limits) -> None:
    assert plan_greedily(HALVING, limits) is None
    assert plan_exactly(HALVING, limits) is None


def test_a_deadline_and_a_budget_hold_together() -> None:
    both = plan_exactly(HALVING, Limits(deadline_s=1800, budget_dollars=14))
    assert both is not None
    assert both.devices == (32, 20, 12, 4)
    assert plan_exactly(HALVING, Limits(deadline_s=1200, budget_dollars=14)) is None
    fastest = plan_exactly(HALVING, Limits(budget_dollars=20))
    assert fastest is not None
    assert fastest.seconds < 1200


def test_many_lanes_on_one_device_beat_as_many_devices_where_they_cost_next_to_nothing() -> None:
    lanes = EpochSeconds(by_devices={1: 10.0}, by_lanes={64: 12.0})
    job = Job(stages=list_stages((64, 10)), epoch_seconds=lanes, instance=Instance(num_devices=1, dollars_per_hour=3))
    plan = plan_exactly(job, Limits(deadline_s=200))
    assert plan is not None
    assert plan.devices == (1,)
    assert plan.cost_dollars < predict(job, [64]).cost_dollars / 40


def test_the_naive_plan_keeps_the_devices_of_each_trial() -> None:
    plan = plan_naively(HALVING, Limits(deadline_s=1800))
    assert plan is not None
    assert len({count // stage.num_trials for count, stage in zip(plan.devices, HALVING.stages, strict=True)}) == 1


def test_stragglers_are_expected_where_trials_wait_for_each_other() -> None:
    uneven = replace(HALVING, epoch_seconds=replace(HALVING.epoch_seconds, spread=0.3))
    devices = (32, 20, 12, 4)
    expected, drawn = predict(uneven, devices), forecast(uneven, devices, num_samples=400)
    assert expected.seconds > predict(HALVING, devices).seconds
    assert expected.seconds == pytest.approx(drawn.seconds, rel=0.02)
    assert expected.cost_dollars == pytest.approx(drawn.cost_dollars, rel=0.02)


def test_times_lie_on_straight_lines_between_measured_ones() -> None:
    seconds = EpochSeconds(by_devices={1: 100.0, 4: 25.0, 8: 20.0})
    assert seconds.at(2) == pytest.approx(50)
    assert seconds.at(16) == 20
    assert seconds.most_useful == 8


@pytest.mark.parametrize(
    "build",
    [
        lambda: JobStage(num_trials=0, num_epochs=1),
        lambda: EpochSeconds(by_devices={2: 1.0}),
        lambda: EpochSeconds(by_devices={1: 0.0}),
        lambda: EpochSeconds(by_devices={1: float("nan")}),
        lambda: Instance(num_devices=0, dollars_per_hour=1),
        lambda: Instance(num_devices=1, dollars_per_hour=float("inf")),
        lambda: replace(HALVING, stages=[]),
        lambda: replace(HALVING, max_instances=0),
    ],
)
def test_numbers_that_make_no_sense_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(PlanError):
        build()


def _median_cost(plans: list[Prediction]) -> float:
    costs = sorted(plan.cost_dollars for plan in plans)
    return costs[len(costs) // 2]
