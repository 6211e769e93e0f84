"""A run on spot nodes: notices are heeded, what is lost is replaced, and the deadline decides at what price."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from tests.clocks import JumpingClock
from tests.cloud.nodes import CountedCluster, CountedWork, Listener
from tests.cloud.test_following import INSTANCE, JOB, make_lanes

from headwater.cloud.following import Rules
from headwater.cloud.spot_rule import SpotProgress, choose_fleet, count_done
from headwater.conduct.protocol import Conductor
from headwater.execute.node_keeper import NodeKeeper
from headwater.plan.elastic_plan import lay_out
from headwater.plan.spot import ALL_ON_DEMAND, ALWAYS_ON_DEMAND, FleetChoice, Market

SPOT = replace(INSTANCE, dollars_per_hour=9.0, is_spot=True, on_demand_dollars_per_hour=36.0)
SPOT_JOB = replace(JOB, instance=SPOT)
PLAN = lay_out(SPOT_JOB, (3, 2, 1))  # 610 s: 130, 180 and 300
RULES = Rules(instance=SPOT, plan=PLAN)
BEGIN = SpotProgress(at_s=0.0, stage=0, share_left=1.0, num_on_demand=0, is_available=True)
BUY_SPOT, BUY_ON_DEMAND, WAIT = (FleetChoice(buy=market) for market in (Market.SPOT, Market.ON_DEMAND, Market.WAIT))
DEADLINE_S = 1200.0


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

    def __init__(self, deadline_s: float | None = DEADLINE_S) -> None:
        self.clock = JumpingClock()
        self.cluster = CountedCluster(self.clock, is_spot=True)
        self.work = CountedWork(self.cluster)
        self.listener = Listener(make_lanes(*[(0, 1)] * 6))
        self.keeper = NodeKeeper(self.cluster, RULES, SPOT_JOB, deadline_s=deadline_s, clock=self.clock)
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
    assert any("the run is late: nodes on demand take their place" in note for note in run.listener.notes)


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
