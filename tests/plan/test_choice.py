"""The choice between types of instances, and between spot and on demand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.plan.jobs import HALVING, P3_8XLARGE, draw_job

from headwater.plan.choice import choose_plan, keep_slack, name_rent, plan_all
from headwater.plan.elastic import Limits, plan_fastest
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import Job

LIMITS = Limits(deadline_s=1800)


def rent(**changes: object) -> Job:
    return replace(HALVING, instance=replace(P3_8XLARGE, **changes))  # type: ignore[arg-type] # fields of an instance


def test_the_cheapest_type_is_chosen_and_its_rivals_are_told() -> None:
    jobs = [rent(name="dear", dollars_per_hour=20), rent(name="cheap", dollars_per_hour=10), rent(name="middle")]
    chosen, greedy = choose_plan(jobs, LIMITS)
    assert chosen is not None
    assert chosen.job.instance.name == "cheap"
    assert set(greedy) == {"dear", "cheap", "middle"}


def test_the_choice_is_the_best_exact_plan_over_all_types() -> None:
    rng = Random(11)
    for _ in range(15):
        first = draw_job(rng)
        jobs = [
            replace(first, instance=replace(draw_job(rng).instance, name=str(number)), max_instances=None)
            for number in range(4)
        ]
        limits = Limits(deadline_s=max(plan_fastest(job).seconds for job in jobs) * 1.5)
        exact = [plan for job in jobs if (plan := plan_exactly(job, limits)) is not None]
        chosen, _ = choose_plan(jobs, limits)
        assert chosen is not None
        assert chosen.best is not None
        assert chosen.best.cost_dollars == pytest.approx(min(plan.cost_dollars for plan in exact))


def test_spot_instances_leave_time_for_a_change_to_on_demand() -> None:
    spot = rent(is_spot=True, dollars_per_hour=4.0, interruptions_per_hour=0.2)
    assert keep_slack(spot, LIMITS).deadline_s == 1800 - 2 * 30
    assert keep_slack(HALVING, LIMITS) == LIMITS
    chosen, greedy = choose_plan([HALVING, spot], LIMITS)
    assert chosen is not None
    assert chosen.job.instance.is_spot
    assert set(greedy) == {name_rent(HALVING), name_rent(spot)}
    plan = chosen.lay_out()
    assert plan is not None
    assert plan.is_spot
    assert plan.seconds <= 1740


def test_the_gap_of_the_greedy_search_is_known() -> None:
    plans = plan_all(HALVING, Limits(deadline_s=1200))
    assert plans.measure_gap(Limits(deadline_s=1200)) == pytest.approx(0, abs=0.05)
    assert plan_all(HALVING, Limits(deadline_s=1)).best is None


def test_what_no_type_can_do_has_no_plan() -> None:
    chosen, greedy = choose_plan([HALVING], Limits(deadline_s=60))
    assert chosen is None
    assert list(greedy.values()) == [None]


def test_where_an_exact_plan_would_take_too_long_there_is_none() -> None:
    assert plan_exactly(HALVING, LIMITS, most_starts=5) is None
