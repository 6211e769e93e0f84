"""Nodes come and go as a search goes on, and what they cost is known at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from tests.clocks import JumpingClock
from tests.cloud.nodes import CountedCluster, CountedWork, Listener
from tests.cloud.test_following import JOB, RULES, make_lanes

from headwater.cloud.following import Rules, plan_left
from headwater.cloud.protocol import NodeState
from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.node_keeper import NodeKeeper
from headwater.plan.elastic import Limits
from headwater.trials import Reported, Spending, StageSpending, Started

REPORT = Reported(key=0, group=0, reports=(), num_steps=1, seconds=1.0)
FIRST, SECOND, THIRD = [(0, 1)] * 6, [(1, 4)] * 2, [(4, 9)]


class Run:
    """A keeper with all that it deals with."""

    def __init__(
        self, rules: Rules = RULES, deadline_s: float | None = None, places: Sequence[tuple[int, int]] = FIRST
    ) -> None:
        self.clock = JumpingClock()
        self.cluster = CountedCluster(self.clock)
        self.work = CountedWork(self.cluster)
        self.listener = Listener(make_lanes(*places))
        self.keeper = NodeKeeper(self.cluster, rules, JOB, deadline_s=deadline_s, clock=self.clock)
        self.tend()

    @property
    def conductor(self) -> Conductor:
        return cast(Conductor, self.listener)

    def tend(self, seconds: float = 0.0) -> None:
        """Let time pass, and have the nodes seen to as often as a run does."""
        self.clock.jump(seconds)
        for _ in range(2):
            self.keeper.tend(self.conductor, self.work)


@pytest.fixture
def run() -> Run:
    run = Run()
    run.work.busy = set(run.cluster.nodes)
    return run


def test_each_stage_has_its_nodes(run: Run) -> None:
    sizes = [len(run.cluster.nodes)]
    for places in (SECOND, THIRD, []):
        run.listener.lanes = make_lanes(*places)
        run.work.busy = set()
        run.tend(10.0)
        sizes.append(len(run.cluster.nodes))
    assert sizes == [3, 2, 1, 0]


def test_a_node_that_is_to_go_goes_when_what_trains_there_has_left(run: Run) -> None:
    run.listener.lanes = make_lanes(*SECOND)
    run.tend(10.0)
    assert run.listener.regrouped == ["node-0/cpu:0"]
    assert len(run.cluster.nodes) == 3
    run.work.busy.remove("node-0")
    run.tend(10.0)
    assert set(run.cluster.nodes) == {"node-1", "node-2"}


def test_a_node_that_is_lost_is_replaced(run: Run) -> None:
    del run.cluster.nodes["node-1"]
    run.work.busy.remove("node-1")
    run.tend(10.0)
    assert set(run.cluster.nodes) == {"node-0", "node-2", "node-3"}


@pytest.mark.parametrize(("idle_s", "num_left"), [(59.0, 3), (61.0, 2)])
def test_an_idle_node_is_given_back_after_a_minute(run: Run, idle_s: float, num_left: int) -> None:
    run.tend(100.0)
    run.work.busy.remove("node-1")
    run.tend(10.0)
    run.tend(idle_s)
    assert len(run.cluster.nodes) == num_left
    run.tend(1000.0)
    assert len(run.cluster.nodes) == 2, "and does not come back in this stage"


def test_what_is_spent_is_told_beside_the_plan(run: Run) -> None:
    run.tend(100.0)
    spending = run.listener.spending
    assert spending is not None
    assert RULES.plan is not None
    assert spending.cost_dollars == pytest.approx(3.0)  # three nodes, a cent a second
    assert spending.planned_dollars == RULES.plan.cost_dollars
    assert spending.forecast_dollars == pytest.approx(3.0 + RULES.plan.cost_dollars), "nothing is done yet"
    run.listener.lanes = make_lanes(*SECOND)
    run.work.busy = set()
    run.tend(20.0)
    run.keeper.finish(run.conductor)
    spending = run.listener.spending
    assert spending is not None
    assert spending.stages[0].seconds == pytest.approx(120.0)
    assert spending.stages[0].cost_dollars == pytest.approx(3.6)
    assert spending.num_nodes == 0


def test_a_stage_that_falls_behind_is_planned_anew() -> None:
    run = Run(deadline_s=900.0)
    run.work.busy = set(run.cluster.nodes)
    for number, seconds in ((6, 10.0), (3, 200.0)):  # three epochs in 200 s, not in 60
        run.keeper.hear(REPORT)
        run.listener.lanes = make_lanes(*[(0, 1)] * number)
        run.tend(seconds)
    run.tend(1.0)
    (note,) = (note for note in run.listener.notes if "times as long as planned" in note)
    assert "stage 1 takes" in note
    assert run.listener.spending is not None
    run.tend(10.0)
    assert run.listener.spending.num_replanned == 1


def test_a_run_that_no_node_joins_ends() -> None:
    run = Run()
    run.work.see_nodes = dict  # type: ignore[method-assign]  # nobody is there
    run.tend(900.0)
    with pytest.raises(StudyError, match=r"no node has joined the Ray cluster for 9\d\d s, and 3 were launched"):
        run.tend(20.0)


def test_a_run_whose_nodes_wait_in_a_queue_waits_with_them() -> None:
    run = Run()
    run.work.see_nodes = dict  # type: ignore[method-assign]  # nobody is there
    queued = {name: replace(node, state=NodeState.QUEUED) for name, node in run.cluster.nodes.items()}
    run.cluster.nodes = queued
    for _ in range(4):
        run.tend(900.0)
    assert run.cluster.nodes == queued


def test_a_budget_that_pays_for_no_node_ends_the_run_at_once() -> None:
    run = Run(Rules(instance=RULES.instance, plan=RULES.plan, budget_dollars=0.5))  # a minute costs 0.6
    assert not run.cluster.nodes
    assert not run.keeper.is_waiting()
    assert "the budget of $0.50 has no room for a node" in run.listener.notes


def test_the_budget_ends_a_run_before_it_is_exceeded() -> None:
    budget = 4.0
    run = Run(Rules(instance=RULES.instance, plan=RULES.plan, budget_dollars=budget))
    run.work.busy = set(run.cluster.nodes)
    run.tend(60.0)
    run.keeper.hear(Started(key=0, group=0))
    run.tend(20.0)
    run.keeper.hear(REPORT)
    assert run.keeper.find_end() is None  # 2.4 are spent; 20 s of an epoch and 10 s more cost 0.9
    run.tend(25.0)
    assert "the budget of $4.00" in str(run.keeper.end_reason), "though nobody has reported since"
    assert run.cluster.nodes, "what trains comes to its report first"
    run.tend(28.0)
    assert not run.cluster.nodes, "but not if that takes too long"
    run.keeper.finish(run.conductor)
    assert run.listener.spending is not None
    assert run.listener.spending.cost_dollars <= budget


def test_what_is_left_of_a_stage_that_was_begun_before_counts_as_the_whole_that_was_planned() -> None:
    half = [(2, 4)] * 2
    plan = plan_left(JOB, make_lanes(*half), Limits(deadline_s=500.0))
    run = Run(Rules(instance=RULES.instance, plan=plan), 500.0, half)
    spending = run.listener.spending
    assert spending is not None
    assert spending.forecast_s == pytest.approx(plan.seconds), "nothing of it is done"
    assert spending.forecast_dollars == pytest.approx(plan.cost_dollars)


def test_a_run_that_goes_on_has_the_nodes_of_what_is_left_and_keeps_what_was_spent() -> None:
    planned = StageSpending(num_trials=6, num_epochs=1, planned_nodes=3, planned_s=130.0, planned_dollars=3.9)
    first = replace(planned, seconds=140.0, cost_dollars=4.2)
    cut = StageSpending(num_trials=2, num_epochs=3, planned_nodes=2, planned_s=180.0, planned_dollars=3.6, seconds=9.0)
    last = StageSpending(num_trials=1, num_epochs=5, planned_nodes=1, planned_s=300.0, planned_dollars=3.0)
    earlier = Spending(seconds=149.0, cost_dollars=4.4, num_nodes=0, earlier_dollars=0.6, stages=(first, cut, last))
    plan = plan_left(JOB, make_lanes(*SECOND), Limits(deadline_s=500.0))
    run = Run(Rules(instance=RULES.instance, plan=plan, budget_dollars=12.0, earlier=earlier), 500.0, SECOND)
    assert len(run.cluster.nodes) == 2
    run.work.busy = set(run.cluster.nodes)
    run.tend(100.0)
    spending = run.listener.spending
    assert spending is not None
    assert spending.cost_dollars == pytest.approx(2.0)
    assert (spending.earlier_s, spending.earlier_dollars) == (149.0, 5.0)
    assert spending.planned_dollars == pytest.approx(plan.cost_dollars), "for what was left"
    assert spending.stages[0] == first, "a stage that was done stays as it went"
    assert (spending.stages[1].planned_nodes, spending.stages[1].seconds) == (2, None)
    assert run.keeper.end_reason is None
    run.tend(250.0)  # seven dollars, with five before
    assert "the budget of $12.00 has no room for another epoch; $12.00 are spent" in str(run.keeper.end_reason)
