"""How many nodes a run wants, which of them go, and when it must end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.cloud.bill import Stay, add_up
from headwater.cloud.following import (
    LEAVING_S,
    HeldNode,
    Rules,
    Situation,
    Step,
    choose_step,
    count_left,
    find_end,
    find_stage,
    hold,
    measure_lag,
    plan_left,
    plan_rest,
    slow_down,
)
from headwater.errors import PlanError
from headwater.plan.elastic import Limits, predict
from headwater.plan.elastic_plan import lay_out
from headwater.plan.jobs import EpochSeconds, Instance, Job, JobStage
from headwater.plan.spot import ALL_ON_DEMAND, FleetChoice, Market
from headwater.trials import Lane, Spending

INSTANCE = Instance(num_devices=1, dollars_per_hour=36.0, initialise_s=10.0)
STAGES = (
    JobStage(num_trials=6, num_epochs=1),
    JobStage(num_trials=2, num_epochs=3),
    JobStage(num_trials=1, num_epochs=5),
)
JOB = Job(stages=STAGES, epoch_seconds=EpochSeconds(by_devices={1: 60.0}), instance=INSTANCE)
RULES = Rules(instance=INSTANCE, plan=lay_out(JOB, (3, 2, 1)))


def make_lanes(*places: tuple[int, int | None]) -> list[Lane]:
    return [
        Lane(number=number, config={}, seed=0, start_epoch=epoch, until=until)
        for number, (epoch, until) in enumerate(places)
    ]


def make_nodes(*idle_since_s: float | None) -> tuple[HeldNode, ...]:
    return tuple(
        HeldNode(name=f"node-{number}", launched_s=number, idle_since_s=since)
        for number, since in enumerate(idle_since_s)
    )


@pytest.mark.parametrize(
    ("places", "stage", "num_left"),
    [
        ([(0, 1)] * 6, 0, 6),
        ([(1, 1), (0, 1)], 0, 1),
        ([(1, 4), (3, 4)], 1, 4),
        ([(4, 9)], 2, 5),
        ([(6, None)], 2, 3),
        ([], 3, 0),
    ],
)
def test_lanes_tell_in_which_stage_a_search_is(places: list[tuple[int, int | None]], stage: int, num_left: int) -> None:
    lanes = make_lanes(*places)
    assert find_stage(STAGES, lanes) == stage
    assert count_left(STAGES, min(stage, 2), lanes) == num_left


def test_a_stage_gets_the_nodes_that_the_plan_gives_it() -> None:
    wanted = [
        choose_step(RULES, Situation(now_s=0.0, stage=stage, nodes=make_nodes(None))).num_launched for stage in range(4)
    ]
    assert wanted == [2, 1, 0, 0]


def test_idle_nodes_go_before_old_ones_and_old_ones_before_others() -> None:
    nodes = make_nodes(None, None, 5.0)
    assert choose_step(RULES, Situation(now_s=10.0, stage=1, nodes=nodes)).leaving == ("node-2",)
    assert choose_step(RULES, Situation(now_s=10.0, stage=2, nodes=nodes)).leaving == ("node-2", "node-0")
    assert set(choose_step(RULES, Situation(now_s=10.0, stage=3, nodes=nodes)).leaving) == {
        "node-0",
        "node-1",
        "node-2",
    }


@pytest.mark.parametrize(("idle_s", "gone"), [(59.0, ()), (61.0, ("node-1",))])
def test_a_node_that_was_idle_for_a_minute_goes(idle_s: float, gone: tuple[str, ...]) -> None:
    step = choose_step(RULES, Situation(now_s=100.0, stage=0, nodes=make_nodes(None, 100.0 - idle_s, None)))
    assert (step.leaving, step.idled, step.num_launched) == (gone, gone, 0)


def test_what_went_because_it_was_idle_does_not_come_back_in_the_same_stage() -> None:
    situation = Situation(now_s=100.0, stage=0, nodes=make_nodes(None, None), num_idled=1)
    assert choose_step(RULES, situation).num_launched == 0
    assert choose_step(RULES, replace(situation, nodes=make_nodes(None))).num_launched == 1, "another was lost"


def test_the_last_node_stays_however_long_it_is_idle() -> None:
    assert choose_step(RULES, Situation(now_s=999.0, stage=0, nodes=make_nodes(0.0), num_idled=2)) == choose_step(
        RULES, Situation(now_s=0.0, stage=2, nodes=make_nodes(None))
    )


def test_nodes_are_launched_only_as_far_as_their_minimum_is_in_the_budget() -> None:
    rules = replace(RULES, budget_dollars=2.0)  # a minute costs 0.6
    situation = Situation(now_s=0.0, stage=0, nodes=(), cost_dollars=0.7)
    assert choose_step(rules, situation).num_launched == 2
    assert choose_step(rules, replace(situation, cost_dollars=1.5)).num_launched == 0


def test_each_stay_costs_its_minimum_at_least() -> None:
    instance = replace(INSTANCE, launch_dollars=0.25)  # a cent a second
    stays = [Stay(node="a", begin_s=0.0, end_s=10.0), Stay(node="b", begin_s=0.0)]
    assert add_up(stays, instance, 20.0) == pytest.approx(0.6 + 0.6 + 0.5)
    assert add_up(stays, instance, 100.0) == pytest.approx(0.6 + 1.0 + 0.5)


def test_spot_nodes_and_others_are_charged_at_their_own_prices() -> None:
    spot = replace(INSTANCE, dollars_per_hour=9.0, is_spot=True, on_demand_dollars_per_hour=36.0)
    stays = [Stay(node="a", begin_s=0.0, end_s=100.0, is_spot=True), Stay(node="b", begin_s=0.0, end_s=100.0)]
    assert add_up(stays, spot, 500.0) == pytest.approx(0.25 + 1.0)
    assert add_up(stays[1:], replace(spot, on_demand_dollars_per_hour=None), 500.0) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("num_ready", "num_coming", "launched", "leaving"),
    [(0, 0, 3, ()), (0, 3, 0, ()), (1, 2, 0, ("node-0",)), (3, 0, 0, ("node-0", "node-1", "node-2"))],
)
def test_nodes_are_replaced_one_by_one_as_others_have_joined(
    num_ready: int, num_coming: int, launched: int, leaving: tuple[str, ...]
) -> None:
    held = tuple(replace(node, is_spot=True) for node in make_nodes(None, None, None))
    fresh = tuple(
        HeldNode(name=f"new-{number}", launched_s=9.0, has_joined=number < num_ready)
        for number in range(num_ready + num_coming)
    )
    step = choose_step(RULES, Situation(now_s=10.0, stage=0, nodes=held + fresh, choice=ALL_ON_DEMAND))
    assert (step.num_launched, step.leaving) == (launched, leaving)


def test_nothing_is_launched_while_spot_nodes_are_waited_for() -> None:
    waiting = Situation(now_s=0.0, stage=0, nodes=(), choice=FleetChoice(buy=Market.WAIT))
    assert choose_step(replace(RULES, budget_dollars=9.0), waiting) == Step()


def test_a_run_ends_while_what_is_left_still_pays_for_its_last_epoch() -> None:
    rules = replace(RULES, budget_dollars=1.0)
    epoch_s = 20.0
    most = 1.0 - 2 * 0.01 * (epoch_s + LEAVING_S)
    assert find_end(rules, 0.02, most - 0.001, epoch_s) is None
    assert "the budget of $1.00" in str(find_end(rules, 0.02, most + 0.001, epoch_s))
    assert find_end(RULES, 0.02, 1e9, epoch_s) is None, "there is no budget"


def test_a_stage_that_falls_behind_is_told_by_what_is_done_of_it() -> None:
    assert measure_lag(JOB, 0, 3, 0.5, 60.0) == pytest.approx(1.0)  # two rounds of a minute
    assert measure_lag(JOB, 0, 3, 0.5, 90.0) == pytest.approx(1.5)
    assert measure_lag(JOB, 0, 3, 0.1, 90.0) == 1.0, "too early to tell"


def test_the_rest_is_planned_with_what_is_held_and_gets_more_where_it_is_late() -> None:
    slow = slow_down(JOB, 2.0)
    easy = plan_rest(slow, 0, 6, Limits(deadline_s=5000.0), hold([100.0]))
    hard = plan_rest(slow, 0, 6, Limits(deadline_s=1300.0), hold([100.0]))
    assert [stage.num_instances for stage in easy] == [1, 1, 1], "no launch has to be paid"
    assert hard[0].num_instances > 1
    assert sum(stage.seconds for stage in hard) <= 1300.0
    late = plan_rest(slow, 0, 6, Limits(deadline_s=1.0), hold([]))
    assert sum(stage.seconds for stage in late) == pytest.approx(predict(slow, (6, 2, 1)).seconds), "as fast as can be"


def test_where_budget_and_deadline_cannot_both_be_kept_the_deadline_gives_way() -> None:
    cheapest = predict(JOB, (1, 1, 1))
    rest = plan_rest(JOB, 0, 6, Limits(deadline_s=1.0, budget_dollars=cheapest.cost_dollars + 1e-6), hold([]))
    assert [stage.num_instances for stage in rest] == [1, 1, 1]


def test_what_is_left_of_a_job_is_planned_as_a_job_of_its_own() -> None:
    plan = plan_left(JOB, make_lanes((1, 4), (2, 4)), Limits(deadline_s=500.0))
    left = replace(JOB, stages=(JobStage(num_trials=2, num_epochs=3), STAGES[2]))  # five epochs
    assert plan.instances == (0, 2, 1)
    assert plan.seconds == pytest.approx(predict(left, (2, 1)).seconds)
    assert plan.cost_dollars == pytest.approx(predict(left, (2, 1)).cost_dollars)
    assert plan_left(JOB, (), Limits(deadline_s=500.0)).instances == (0, 0, 0), "nothing is left"


def test_what_is_left_is_refused_where_no_plan_keeps_to_the_limits() -> None:
    lanes = make_lanes((4, 9))
    with pytest.raises(PlanError, match=r"keeps to a deadline of 300 s: the nearest to that takes 310 s for \$3.10"):
        plan_left(JOB, lanes, Limits(deadline_s=300.0))
    with pytest.raises(PlanError, match=r"keeps to the \$3.00 left of the budget"):
        plan_left(JOB, lanes, Limits(budget_dollars=3.0))


def test_what_earlier_runs_cost_counts_towards_the_budget() -> None:
    earlier = Spending(seconds=50.0, cost_dollars=0.8, num_nodes=0, earlier_dollars=0.2)
    rules = replace(RULES, budget_dollars=3.0, earlier=earlier)
    situation = Situation(now_s=0.0, stage=0, nodes=(), cost_dollars=0.7)
    assert choose_step(rules, situation).num_launched == 2, "as with 2.0 and no earlier run"
    assert find_end(rules, 0.02, 1.39, 20.0) is None
    told = find_end(rules, 0.02, 1.41, 20.0)
    assert "the budget of $3.00 has no room for another epoch; $2.41 are spent" in str(told)
