"""Rules for spot instances: none is ever late, and what hindsight could do is a bound for all of them."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.spot_trials import choose_ages, keep_pace, run_on_traces

from headwater.errors import PlanError
from headwater.plan.spot import Market, SpotState, SpotTask, follow_progress
from headwater.plan.spot_odds import Prices, SpotOdds, SpotPolicy, Zone, bound_cost

STEP_S = 300.0
PRICES = Prices(spot=1.0, on_demand=3.0)
TASK = SpotTask(work_s=60 * STEP_S, deadline_s=90 * STEP_S, switch_s=2 * STEP_S)


def draw_trace(rng: Random, num_steps: int, lost: float, back: float) -> list[bool]:
    trace = [rng.random() < 0.5]
    for _ in range(num_steps - 1):
        chance = lost if trace[-1] else back
        trace.append(trace[-1] != (rng.random() < chance))
    return trace


follow = keep_pace(STEP_S)


def test_no_rule_is_ever_late_nor_cheaper_than_hindsight() -> None:
    rng = Random(4)
    for lost, back in ((0.01, 0.2), (0.1, 0.1), (0.3, 0.02), (0.5, 0.5), (1.0, 0.0)):
        odds = SpotOdds.fit(draw_trace(rng, 2000, lost, back), STEP_S)
        policy = SpotPolicy(TASK, [odds], PRICES)
        for _ in range(20):
            trace = draw_trace(rng, 90, lost, back)
            least = bound_cost(TASK, [trace], STEP_S, PRICES)
            for decide in (follow, policy.decide):
                run = run_on_traces(TASK, [trace], STEP_S, PRICES, decide)
                assert not run.is_late
                assert run.seconds <= TASK.deadline_s
                assert run.cost_dollars >= least - 1e-9


def test_whoever_knows_the_odds_pays_less_on_average_than_whoever_keeps_an_even_pace() -> None:
    rng = Random(5)
    policy = SpotPolicy(TASK, [SpotOdds.fit(draw_trace(rng, 5000, 0.1, 0.1), STEP_S)], PRICES)
    traces = [draw_trace(rng, 90, 0.1, 0.1) for _ in range(60)]
    evenly, by_odds = (
        sum(run_on_traces(TASK, [trace], STEP_S, PRICES, decide).cost_dollars for trace in traces)
        for decide in (follow, policy.decide)
    )
    assert by_odds < evenly


@pytest.mark.parametrize(("num_zones", "is_available"), [(1, True), (1, False), (2, True), (2, False)])
def test_where_everything_is_late_by_the_table_it_is_on_demand(num_zones: int, *, is_available: bool) -> None:
    odds = [SpotOdds.fit(draw_trace(Random(7), 2000, 0.1, 0.1), STEP_S, choose_ages(num_zones))] * num_zones
    policy = SpotPolicy(TASK, odds, PRICES)
    zones = [Zone(is_available=is_available, age_s=0.0)] * num_zones
    for present in Market:
        for at_s in (29 * STEP_S, 30 * STEP_S, 90 * STEP_S, 900 * STEP_S):
            state = SpotState(at_s=at_s, done_s=0.0, present=present, is_available=is_available)
            assert policy.decide(TASK, state, zones) == (Market.ON_DEMAND, 0)


@pytest.mark.parametrize("num_zones", [2, 3])
def test_with_several_zones_no_rule_is_late_and_another_zone_never_costs_a_clairvoyant_more(num_zones: int) -> None:
    rng = Random(6)
    past = [draw_trace(rng, 2000, 0.1, 0.1) for _ in range(num_zones)]
    odds = [SpotOdds.fit(trace, STEP_S, choose_ages(num_zones)) for trace in past]
    policy = SpotPolicy(TASK, odds, PRICES)
    alone = SpotPolicy(TASK, odds[:1], PRICES)
    costs, costs_alone = 0.0, 0.0
    for _ in range(10):
        traces = [draw_trace(rng, 90, 0.1, 0.1) for _ in range(num_zones)]
        least = bound_cost(TASK, traces, STEP_S, PRICES)
        assert least <= min(bound_cost(TASK, [trace], STEP_S, PRICES) for trace in traces) + 1e-9
        for decide in (follow, policy.decide):
            run = run_on_traces(TASK, traces, STEP_S, PRICES, decide)
            assert not run.is_late
            assert run.cost_dollars >= least - 1e-9
        costs += run_on_traces(TASK, traces, STEP_S, PRICES, policy.decide).cost_dollars
        costs_alone += run_on_traces(TASK, traces[:1], STEP_S, PRICES, alone.decide).cost_dollars
    assert costs < costs_alone


def test_a_change_of_zones_is_paid_for_by_hand() -> None:
    first, second = [True] * 40 + [False] * 50, [False] * 38 + [True] * 52
    run = run_on_traces(TASK, [first, second], STEP_S, PRICES, follow)
    assert (run.num_lost, run.on_demand_s) == (1, 0.0)
    assert run.cost_dollars == pytest.approx(64 * STEP_S / 3600 * 1.0), "two starts"
    assert bound_cost(TASK, [first, second], STEP_S, PRICES) == pytest.approx(run.cost_dollars)


def test_hindsight_is_worked_out_by_hand() -> None:
    always, never = [True] * 90, [False] * 90
    assert bound_cost(TASK, [always], STEP_S, PRICES) == pytest.approx(62 * STEP_S / 3600 * 1.0)
    assert bound_cost(TASK, [never], STEP_S, PRICES) == pytest.approx(62 * STEP_S / 3600 * 3.0)
    half = [True] * 32 + [False] * 58  # 30 steps of training on spot, a change, and 30 on demand
    assert bound_cost(TASK, [half], STEP_S, PRICES) == pytest.approx((32 * 1.0 + 32 * 3.0) * STEP_S / 3600)


def test_spot_is_used_where_it_stays_and_on_demand_where_it_never_comes() -> None:
    always, never = (run_on_traces(TASK, [[there] * 90], STEP_S, PRICES, follow) for there in (True, False))
    assert always.cost_dollars == pytest.approx(62 * STEP_S / 3600 * 1.0)
    assert (always.num_lost, always.on_demand_s) == (0, 0.0)
    assert never.cost_dollars == pytest.approx(never.on_demand_s / 3600 * 3.0)
    assert never.on_demand_s >= 62 * STEP_S


@pytest.mark.parametrize(
    ("at", "done", "present", "is_available", "chosen"),
    [
        (0, 0, Market.WAIT, True, Market.SPOT),
        (0, 0, Market.WAIT, False, Market.WAIT),
        (30, 10, Market.WAIT, False, Market.ON_DEMAND),
        (30, 10, Market.WAIT, True, Market.SPOT),
        (30, 25, Market.WAIT, False, Market.WAIT),
        (30, 10, Market.ON_DEMAND, True, Market.ON_DEMAND),
        (30, 25, Market.ON_DEMAND, True, Market.SPOT),
        (75, 48, Market.SPOT, True, Market.ON_DEMAND),
        (80, 60, Market.ON_DEMAND, True, Market.WAIT),
    ],
)
def test_uniform_progress_pays_for_who_is_behind(
    at: int, done: int, present: Market, is_available: bool, chosen: Market
) -> None:
    state = SpotState(at_s=at * STEP_S, done_s=done * STEP_S, present=present, is_available=is_available)
    assert follow_progress(TASK, state, step_s=STEP_S) is chosen


def test_what_cannot_be_done_in_time_is_refused() -> None:
    with pytest.raises(PlanError, match="allow more time"):
        SpotTask(work_s=100, deadline_s=110, switch_s=20)
