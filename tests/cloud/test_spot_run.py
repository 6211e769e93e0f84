"""A run on spot nodes: notices are heeded, what is lost is replaced, and the deadline decides at what price."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import cast

import pytest
from tests.clocks import JumpingClock
from tests.cloud.nodes import CountedCluster, CountedWork, Listener
from tests.cloud.test_following import INSTANCE, JOB, make_lanes

from headwater.cloud.following import Rules
from headwater.cloud.spot_rule import (
    AWAY_S,
    SpotMarket,
    SpotNeed,
    SpotProgress,
    choose_by_history,
    choose_fleet,
    count_done,
    find_need,
    make_rule,
    tell_rule,
)
from headwater.conduct.protocol import Conductor
from headwater.execute.node_keeper import NodeKeeper
from headwater.plan.elastic_plan import lay_out
from headwater.plan.spot import ALL_ON_DEMAND, ALWAYS_ON_DEMAND, FleetChoice, Market, SpotRule, SpotTask
from headwater.plan.spot_history import SpotHistory

SPOT = replace(INSTANCE, dollars_per_hour=9.0, is_spot=True, on_demand_dollars_per_hour=36.0)
SPOT_JOB = replace(JOB, instance=SPOT)
PLAN = lay_out(SPOT_JOB, (3, 2, 1))  # 610 s: 130, 180 and 300
RULES = Rules(instance=SPOT, plan=PLAN)
BEGIN = SpotProgress(at_s=0.0, stage=0, share_left=1.0, num_on_demand=0, is_available=True)
BUY_SPOT, BUY_ON_DEMAND, WAIT = (FleetChoice(buy=market) for market in (Market.SPOT, Market.ON_DEMAND, Market.WAIT))
DEADLINE_S = 1200.0
SOON_BACK = SpotHistory(step_s=30.0, counts=((3,) * 20 + (2, 1)) * 100, source="past.json")
"""Three could be had for ten minutes at a time, and then not for one."""
SOON_GONE = SpotHistory(step_s=30.0, counts=(3, *(2,) * 20) * 100)
"""They were gone before they would have trained."""


def follow_history(history: SpotHistory) -> SpotRule:
    need = find_need(PLAN, SPOT_JOB, DEADLINE_S)
    assert need is not None
    instance = replace(SPOT, spot_history=history)
    return make_rule(need, instance, choose_by_history(need, instance))


@pytest.mark.parametrize(
    ("progress", "choice"),
    [
        (BEGIN, BUY_SPOT),
        (replace(BEGIN, at_s=100.0, is_available=False), BUY_ON_DEMAND),
        (replace(BEGIN, at_s=100.0, stage=1, is_available=False), WAIT),
        (replace(BEGIN, at_s=250.0, stage=1, num_on_demand=1), BUY_SPOT),
        (replace(BEGIN, at_s=100.0, stage=2, num_on_demand=1), FleetChoice(buy=Market.SPOT, replaced=Market.ON_DEMAND)),
        (replace(BEGIN, at_s=580.0), ALL_ON_DEMAND),
    ],
)
def test_progress_against_the_deadline_decides(progress: SpotProgress, choice: FleetChoice) -> None:
    assert choose_fleet(RULES, SPOT_JOB, DEADLINE_S, progress) == choice


def test_by_a_history_what_is_soon_back_is_waited_for_and_what_is_soon_gone_is_not_bought() -> None:
    late = replace(BEGIN, at_s=300.0, is_available=False)
    assert [choose_fleet(RULES, SPOT_JOB, DEADLINE_S, one) for one in (late, BEGIN)] == [BUY_ON_DEMAND, BUY_SPOT]
    assert choose_fleet(RULES, SPOT_JOB, DEADLINE_S, late, follow_history(SOON_BACK)) == WAIT
    assert choose_fleet(RULES, SPOT_JOB, DEADLINE_S, BEGIN, follow_history(SOON_BACK)) == BUY_SPOT
    assert choose_fleet(RULES, SPOT_JOB, DEADLINE_S, BEGIN, follow_history(SOON_GONE)) == WAIT


@pytest.mark.parametrize("history", [SOON_BACK, SOON_GONE])
def test_no_history_takes_the_time_for_a_loss(history: SpotHistory) -> None:
    rule = follow_history(history)
    for num_on_demand, is_available, at_s in product((0, 3), (True, False), (580.0, 600.0, 1200.0, 5000.0)):
        late = replace(BEGIN, at_s=at_s, num_on_demand=num_on_demand, is_available=is_available)
        assert choose_fleet(RULES, SPOT_JOB, DEADLINE_S, late, rule) == ALL_ON_DEMAND


def test_the_most_nodes_that_are_still_wanted_are_looked_for_in_the_history() -> None:
    needs = [find_need(PLAN, SPOT_JOB, DEADLINE_S, stage) for stage in range(3)]
    task = SpotTask(work_s=PLAN.seconds, deadline_s=DEADLINE_S, switch_s=SPOT_JOB.switch_s)
    assert needs == [SpotNeed(task, 3), SpotNeed(task, 2), SpotNeed(task, 1)]
    assert find_need(PLAN, SPOT_JOB, None) is None
    assert find_need(PLAN, SPOT_JOB, PLAN.seconds + 5) is None
    assert find_need(lay_out(JOB, (3, 2, 1)), JOB, DEADLINE_S) is None


def test_it_is_told_what_will_decide() -> None:
    known = replace(PLAN, instance=replace(SPOT, spot_history=SOON_BACK))
    assert tell_rule(known, SPOT_JOB, DEADLINE_S) == (
        "spot nodes are chosen by odds: 3 instances at once could be had in 2000 of 2200 steps of 30 s (past.json)"
    )
    assert tell_rule(PLAN, SPOT_JOB, DEADLINE_S) == "spot nodes are chosen by uniform progress, without a spot history"
    assert "odds need 3" in (tell_rule(known, SPOT_JOB, PLAN.seconds + 60) or "")
    assert "spot nodes are waited for" in (tell_rule(known, SPOT_JOB, None) or "")
    assert tell_rule(lay_out(JOB, (3, 2, 1)), JOB, DEADLINE_S) is None


def test_spot_nodes_are_away_from_the_first_that_was_not_to_be_had_until_one_is() -> None:
    market = SpotMarket(since_s=0.0)
    assert market.look(50.0) == (True, 50.0)
    market.see(100.0, has_all=True)
    assert market.look(110.0) == (True, 110.0)
    market.see(120.0, has_all=False)
    assert market.look(130.0) == (False, 10.0)
    assert market.look(120.0 + AWAY_S + 5) == (True, 5.0), "nobody knows, so they are asked for"
    market.see(160.0, has_all=False)
    assert market.look(170.0) == (False, 50.0)
    market.see(200.0, has_all=True)
    assert market.look(207.0) == (True, 7.0)


def test_without_a_deadline_or_a_price_on_demand_spot_nodes_are_waited_for() -> None:
    late = replace(BEGIN, at_s=9999.0, is_available=False)
    unpriced = replace(RULES, instance=replace(SPOT, on_demand_dollars_per_hour=None))
    assert choose_fleet(RULES, SPOT_JOB, None, late) == WAIT
    assert choose_fleet(unpriced, SPOT_JOB, DEADLINE_S, late) == WAIT
    assert choose_fleet(replace(RULES, plan=None), None, DEADLINE_S, BEGIN) == BUY_SPOT


def test_a_deadline_that_leaves_no_time_for_a_loss_is_met_on_demand() -> None:
    assert choose_fleet(RULES, SPOT_JOB, PLAN.seconds + 5, BEGIN) == ALL_ON_DEMAND
    on_demand = replace(RULES, plan=lay_out(JOB, (3, 2, 1)))
    assert choose_fleet(on_demand, JOB, DEADLINE_S, BEGIN) == ALWAYS_ON_DEMAND


def test_what_is_done_is_counted_by_the_plan() -> None:
    assert [count_done(PLAN, stage, 0.5) for stage in range(4)] == pytest.approx([65.0, 220.0, 460.0, 610.0])


class SpotRun:
    """A keeper of spot nodes with all that it deals with."""

    def __init__(self, deadline_s: float | None = DEADLINE_S, history: SpotHistory | None = None) -> None:
        self.clock = JumpingClock()
        self.cluster = CountedCluster(self.clock, is_spot=True)
        self.work = CountedWork(self.cluster)
        self.listener = Listener(make_lanes(*[(0, 1)] * 6))
        rules = replace(RULES, instance=replace(SPOT, spot_history=history))
        self.keeper = NodeKeeper(self.cluster, rules, SPOT_JOB, deadline_s=deadline_s, clock=self.clock)
        self.tend()
        self.work.busy = set(self.cluster.nodes)

    @property
    def markets(self) -> dict[str, bool]:
        """Which nodes there are, and whether they are spot nodes."""
        return {name: node.is_spot for name, node in self.cluster.nodes.items()}

    def tend(self, seconds: float = 0.0) -> None:
        self.clock.jump(seconds)
        for _ in range(3):
            self.keeper.tend(cast(Conductor, self.listener), self.work)

    def take(self, name: str) -> None:
        """Take a node back, whatever runs there."""
        del self.cluster.nodes[name]
        self.work.busy.discard(name)

    def finish(self) -> None:
        self.keeper.finish(cast(Conductor, self.listener))


def test_a_node_that_will_be_taken_back_is_left_at_the_next_report_and_replaced_at_once() -> None:
    run = SpotRun()
    run.cluster.announce("node-1", 120.0)
    run.tend(10.0)
    assert run.listener.regrouped == ["node-1/cpu:0"]
    assert set(run.cluster.nodes) == {"node-0", "node-1", "node-2", "node-3"}, "what trains there comes to its report"
    assert "node node-1 will be taken back in 110 s; its trials go on elsewhere" in run.listener.notes
    run.work.busy.discard("node-1")
    run.tend(10.0)
    assert set(run.cluster.nodes) == {"node-0", "node-2", "node-3"}
    run.tend(10.0)
    assert run.listener.spending is not None
    assert run.listener.spending.num_lost == 1


def test_a_node_that_is_taken_without_a_word_is_replaced() -> None:
    run = SpotRun()
    run.take("node-1")
    run.tend(10.0)
    assert run.markets == {"node-0": True, "node-2": True, "node-3": True}


def test_where_no_spot_node_is_to_be_had_who_is_late_pays_and_who_is_early_waits() -> None:
    run = SpotRun()
    run.listener.lanes = make_lanes(*[(1, 4)] * 2)  # the second stage wants two
    run.work.busy = {"node-1", "node-2"}
    run.tend(100.0)  # 130 s of the plan are done
    run.cluster.has_spot = False
    run.take("node-1")
    run.tend(10.0)
    assert run.markets == {"node-2": True}
    assert any("early enough to wait" in note for note in run.listener.notes)
    run.tend(250.0)
    assert run.markets == {"node-2": True, "node-3": False}
    assert any("does not wait: nodes on demand take their place" in note for note in run.listener.notes)


def test_a_run_with_a_history_says_so_and_waits_by_it_until_time_is_out() -> None:
    run = SpotRun(history=SOON_BACK)
    told = "spot nodes are chosen by odds: 3 instances at once could be had in 2000 of 2200 steps of 30 s (past.json)"
    assert run.listener.notes.count(told) == 1
    run.cluster.has_spot = False
    run.take("node-1")
    run.tend(300.0)  # nothing is done, which is late
    assert run.markets == {"node-0": True, "node-2": True}
    run.cluster.has_spot = True
    run.tend(AWAY_S)
    assert run.markets == {"node-0": True, "node-2": True, "node-3": True}
    run.tend(250.0)
    assert sum(not is_spot for is_spot in run.markets.values()) == 3, "no time is left for a loss"
    assert run.listener.notes.count(told) == 1
    run.listener.lanes = make_lanes(*[(1, 4)] * 2)
    run.tend()
    fewer = "spot nodes are chosen by odds: 2 instances at once could be had in 2100 of 2200 steps of 30 s (past.json)"
    assert run.listener.notes.count(fewer) == 1, "as many as are wanted from now on"


def test_a_history_that_cannot_be_followed_is_told_and_uniform_progress_goes_on() -> None:
    run = SpotRun(history=replace(SOON_BACK, step_s=400.0))
    told = "leaves 1 of the history's steps of 400 s, and odds need 3"
    assert sum(told in note for note in run.listener.notes) == 1
    run.cluster.has_spot = False
    run.take("node-1")
    run.tend(300.0)
    assert run.markets == {"node-0": True, "node-2": True, "node-3": False}


def test_what_was_spent_at_either_price_is_told_apart() -> None:
    run = SpotRun()
    run.cluster.has_spot = False
    run.take("node-0")
    run.tend(100.0)
    run.tend(100.0)
    run.finish()
    spending = run.listener.spending
    assert spending is not None
    assert spending.spot_dollars is not None
    stays = {stay.node: stay for stay in spending.stays}
    assert [stays[f"node-{number}"].is_lost for number in range(4)] == [True, False, False, False]
    assert [stays[f"node-{number}"].is_spot for number in range(4)] == [True, True, True, False]
    assert spending.spot_dollars == pytest.approx((100 + 200 + 200) * 0.0025)
    assert spending.cost_dollars - spending.spot_dollars == pytest.approx(100 * 0.01)
    assert sum(stay.cost_until(200.0) for stay in spending.stays) == pytest.approx(spending.cost_dollars)


def test_when_no_time_is_left_for_a_loss_all_nodes_are_replaced_by_ones_on_demand() -> None:
    run = SpotRun()
    run.tend(580.0)
    assert run.markets == {f"node-{number}": number < 3 for number in range(6)}, "what trains comes to its reports"
    run.work.busy = set()
    run.tend(10.0)
    assert run.markets == {f"node-{number}": False for number in range(3, 6)}
    assert any("all nodes are on demand from now on" in note for note in run.listener.notes)


def test_a_run_without_a_deadline_waits_for_hours() -> None:
    run = SpotRun(deadline_s=None)
    run.cluster.has_spot = False
    for name in list(run.cluster.nodes):
        run.take(name)
    run.tend(10.0)
    run.tend(5000.0)
    assert not run.cluster.nodes
    run.cluster.has_spot = True
    run.tend(100.0)
    assert all(run.markets.values())
    assert len(run.markets) == 3
