"""Rules by the odds of a history: when they decide, what they save, and that they never risk a deadline."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from benchmarks.spot_trials import decide_as_run, run_on_traces
from tests.plan.test_spot import PRICES, STEP_S, TASK, draw_trace

from headwater.plan.spot import Market, SpotState, SpotTask, follow_progress
from headwater.plan.spot_choice import MOST_CELLS, choose_rule
from headwater.plan.spot_history import SpotHistory
from headwater.plan.spot_odds import Prices


def make_history(seed: int, lost: float, back: float, *, num_steps: int = 2000, count: int = 4) -> SpotHistory:
    there = draw_trace(Random(seed), num_steps, lost, back)
    return SpotHistory(step_s=STEP_S, counts=tuple(count * is_there for is_there in there), source="past.json")


def test_odds_decide_and_say_what_they_were_read_off() -> None:
    history = replace(make_history(1, 0.1, 0.1), counts=(4, 4, 0, 2) * 100)
    choice = choose_rule(history, TASK, 3)
    assert choice.odds is not None
    said = "spot nodes are chosen by odds: 3 instances at once could be had in 200 of 400 steps of 300 s (past.json)"
    assert choice.told == said
    assert choose_rule(history, TASK, 2).told.startswith("spot nodes are chosen by odds: 2 instances at once could be")


@pytest.mark.parametrize(
    ("num_spare", "num_switch", "least"), [(0, 0, 3), (2, 1, 3), (3, 1, None), (4, 2, 5), (5, 2, None)]
)
def test_a_deadline_with_few_steps_of_the_history_to_spare_is_left_to_uniform_progress(
    num_spare: int, num_switch: int, least: int | None
) -> None:
    task = SpotTask(work_s=60 * STEP_S, deadline_s=(60 + num_spare) * STEP_S, switch_s=num_switch * STEP_S)
    choice = choose_rule(make_history(1, 0.1, 0.1), task, 1)
    assert (choice.odds is None) == (least is not None)
    if least is not None:
        assert choice.make_rule(task, PRICES) is follow_progress
        assert f"leaves {num_spare} of the history's steps of 300 s, and odds need {least}" in choice.told


@pytest.mark.parametrize(("num_nodes", "num_there"), [(5, 0), (1, 400)])
def test_a_history_in_which_so_many_never_come_or_go_is_not_followed(num_nodes: int, num_there: int) -> None:
    history = replace(make_history(1, 0.1, 0.1), counts=(4, 4, 3, 2) * 100)
    choice = choose_rule(history, TASK, num_nodes)
    assert choice.make_rule(TASK, PRICES) is follow_progress
    assert f"could be had in {num_there} of 400 steps of 300 s (past.json), which does not tell" in choice.told


@pytest.mark.parametrize("step_s", [1.0, 1e-6])
def test_the_table_of_a_long_task_has_longer_steps_than_the_history(step_s: float) -> None:
    task = SpotTask(work_s=100_000.0, deadline_s=150_000.0, switch_s=100.0)
    odds = choose_rule(replace(make_history(1, 0.001, 0.001, num_steps=9000), step_s=step_s), task, 1).odds
    if odds is not None:  # else hardly anything of the history is left
        assert 150_000 / odds.step_s * 100_000 / odds.step_s * 3 * 20 <= MOST_CELLS
    assert (odds is None) == (step_s < 1)


@pytest.mark.parametrize("present", list(Market))
@pytest.mark.parametrize("is_available", [True, False])
def test_where_time_runs_out_or_has_run_out_it_is_on_demand_and_never_waits(
    present: Market, *, is_available: bool
) -> None:
    follow = choose_rule(make_history(1, 0.01, 0.9), TASK, 1).make_rule(TASK, PRICES)
    at = SpotState(at_s=0.0, done_s=0.0, present=present, is_available=is_available)
    for done in (0, 10, 59):
        latest_s = TASK.deadline_s - (TASK.work_s - done * STEP_S) - TASK.switch_s  # when on demand is just in time
        for at_s in (latest_s - 1, latest_s, latest_s + STEP_S, TASK.deadline_s, 2 * TASK.deadline_s):
            state = replace(at, at_s=at_s, done_s=done * STEP_S)
            assert follow(TASK, state, step_s=2.0) is Market.ON_DEMAND
    done_with = replace(at, at_s=TASK.deadline_s, done_s=TASK.work_s)
    assert follow(TASK, done_with, step_s=2.0) is Market.WAIT


def test_instances_that_cost_nothing_are_not_waited_with() -> None:
    follow = choose_rule(make_history(1, 0.1, 0.1), TASK, 1).make_rule(TASK, Prices(spot=0.0, on_demand=0.0))
    at = SpotState(at_s=0.0, done_s=0.0, present=Market.WAIT, is_available=True)
    assert follow(TASK, at) is Market.SPOT
    assert follow(TASK, replace(at, is_available=False)) is Market.ON_DEMAND


def test_a_run_that_is_asked_every_few_seconds_is_never_late_and_cheaper_than_by_uniform_progress() -> None:
    task = SpotTask(work_s=7013.0, deadline_s=10_101.0, switch_s=131.0)
    often_s, rng, costs = 20.0, Random(8), [0.0, 0.0]
    for lost, back in ((0.02, 0.2), (0.1, 0.1), (0.3, 0.05), (1.0, 0.5)):
        by_odds = choose_rule(make_history(1, lost, back), task, 1).make_rule(task, PRICES)
        for _ in range(12):
            coarse = draw_trace(rng, 40, lost, back)
            trace = [is_there for is_there in coarse for _ in range(15)]
            for place, rule in enumerate((follow_progress, by_odds)):
                run = run_on_traces(task, [trace], often_s, PRICES, decide_as_run(rule, often_s))
                assert not run.is_late
                costs[place] += run.cost_dollars
    assert costs[1] < costs[0]
