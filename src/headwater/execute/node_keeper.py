"""Keeping the nodes that a plan wants: what `cloud.following` decides is done here, and what it costs is noted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.cloud.following import (
    BEHIND,
    HeldNode,
    Rules,
    Situation,
    choose_step,
    count_left,
    find_end,
    find_stage,
    hold,
    measure_lag,
    plan_rest,
    slow_down,
)
from headwater.cloud.protocol import Cluster, Node, NodeState
from headwater.cloud.spot_rule import (
    SpotMarket,
    SpotNeed,
    SpotProgress,
    choose_by_history,
    choose_fleet,
    find_need,
    make_rule,
)
from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.run_account import RunAccount, measure_left
from headwater.plan.choice import keep_slack
from headwater.plan.elastic import Limits
from headwater.plan.jobs import Job
from headwater.plan.prices import list_deadlines, trace_prices
from headwater.plan.spot import ALL_ON_DEMAND, ALWAYS_ON_DEMAND, FleetChoice, Market, SpotRule, follow_progress
from headwater.trials import Event, Lane, Noted, Reported, Spent, Started

LIST_S = 2.0
"""So often is the cluster asked which nodes there are, unless something has changed."""
TEND_S = 0.5
"""So often are the nodes seen to while nothing happens."""
SHOW_S = 5.0
"""So often is what is spent written down."""
JOIN_S = 900.0
"""So much longer than an instance is said to take may a run wait for its first node, or for another."""
NO_PLAN = "there is no plan where stages are not known before, or nothing says what it costs"
MARKET_NOTES = {
    ALL_ON_DEMAND: "no time is left for the loss of a spot node: all nodes are on demand from now on",
    ALWAYS_ON_DEMAND: "no spot node is to be had, and the run does not wait: nodes on demand take their place",
    FleetChoice(buy=Market.WAIT): "the run is early enough to wait for spot nodes",
    FleetChoice(buy=Market.SPOT, replaced=Market.ON_DEMAND): (
        "the run is early enough for spot nodes, which take the place of those on demand"
    ),
}
"""What is said of where nodes come from, the usual way aside."""
NO_KEY = -1
"""The key of what belongs to no placement."""


class Workplace(Protocol):
    """The nodes that have joined, as whoever trains on them sees them."""

    def see_nodes(self) -> dict[str, bool]:
        """Return which nodes have joined, and whether anything trains there."""

    def let_go(self, nodes: Collection[str]) -> list[str]:
        """Give nodes nothing new; return their devices."""

    def part_from(self, node: str) -> None:
        """Give up all workers of a node."""


@dataclass(slots=True)
class _StageLog:
    """How far a stage is."""

    has_reported: bool = False
    full_s: float | None = None
    """When a trial first reported while all of its nodes had joined: what they do to get ready is over by then."""
    num_epochs: int = 0
    """How many epochs of all its trials there are to train from then on."""
    num_idled: int = 0


class NodeKeeper:
    """Sees to it that there are the nodes that the rules want, and that they go when they are wanted no more.

    Args:
        cluster: Where nodes come from.
        rules: What the run keeps to.
        job: What its plan was made for; None where there is no plan.
        deadline_s: By when it is to be done, in seconds from its beginning.
        clock: What nodes are charged by: seconds since 1970.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: Rules,
        job: Job | None = None,
        *,
        deadline_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.end_reason: str | None = None
        """Why the run must end; None where it need not."""
        self._cluster = cluster
        self._rules = rules
        self._job = job
        self._deadline_s = deadline_s
        self._clock = clock
        self._account = RunAccount(rules, deadline_s, _find_prices(rules, job, deadline_s))
        self._nodes: dict[str, Node] = {}
        self._joined: set[str] = set()
        self._leaving: set[str] = set()
        self._given_back: set[str] = set()
        self._idle_since: dict[str, float] = {}
        self._tend_s = self._list_s = self._show_s = 0.0
        self._joined_s = 0.0
        """When a node was last seen that has joined."""
        self._market = SpotMarket(clock())
        self._need: SpotNeed | None = None
        self._rule: SpotRule = follow_progress
        self._choice: FleetChoice | None = None
        self._told = ""
        """What was said last of where nodes come from."""
        self._told_rule = ""
        self._stage = -1
        self._log = _StageLog()
        self._epoch_s = 0.0
        self._report_s: dict[int, float] = {}

    def find_end(self) -> str | None:
        """Return why the run must end now; asked at every report."""
        if self.end_reason is None:
            cost, rate = self._account.add_up(self._clock()), self._account.dollars_per_second
            self.end_reason = find_end(self._rules, rate, cost, self._epoch_s)
        return self.end_reason

    def hear(self, event: Event) -> None:
        """Take in that a placement has begun or reported: so long apart reports are."""
        if not isinstance(event, Started | Reported):
            return
        now_s = self._clock()
        if isinstance(event, Reported):
            self._log.has_reported = True
            self._epoch_s = max(self._epoch_s, now_s - self._report_s.get(event.key, now_s))
        self._report_s[event.key] = now_s

    def tend(self, conductor: Conductor, place: Workplace) -> None:
        """Have the nodes that are wanted now; called at every event, and every second or so."""
        now_s = self._clock()
        self._tend_s = now_s + TEND_S
        self._account.begin(now_s)
        if now_s >= self._list_s:
            self._see_nodes(now_s)
        lanes = conductor.list_lanes()
        self._see_stage(conductor, lanes, now_s)
        self._see_idle(place, now_s)
        if lanes is None:  # it is measured what is to come, on one device
            self._idle_since.clear()
        self._see_notices(conductor, place, now_s)
        self.find_end()
        if self._rules.plan is not None and lanes:
            self._follow_up(conductor, lanes, now_s)
        self._choose_fleet(conductor, lanes, now_s)
        self._act(conductor, place, now_s)
        if now_s >= self._show_s:
            self._show(conductor, now_s, lanes)

    def is_due(self) -> bool:
        """Whether it is time to see to the nodes, though nothing has happened."""
        return self._clock() >= self._tend_s

    def is_waiting(self) -> bool:
        """Whether nodes are to come on which something can train."""
        return self.end_reason is None and self._rules.count_wanted(max(self._stage, 0)) > 0

    def finish(self, conductor: Conductor) -> None:
        """Give all nodes back, and write down what they cost."""
        self._give_back(list(self._nodes))
        now_s = self._clock()
        self._account.see_nodes({}, self._given_back, now_s)
        self._account.end_stage(now_s)
        self._show(conductor, now_s, ())

    def _see_nodes(self, now_s: float) -> None:
        self._list_s = now_s + LIST_S
        nodes = {node.id: node for node in self._cluster.list_nodes()}
        self._account.see_nodes(nodes, self._given_back, now_s)
        self._leaving &= nodes.keys()
        self._nodes = {name: node for name, node in nodes.items() if node.state is not NodeState.ENDING}

    def _give_back(self, names: Sequence[str]) -> None:
        """Give nodes back; those that would have been taken count as lost all the same."""
        self._given_back.update(name for name in names if self._nodes[name].taken_s is None)
        self._cluster.release([self._nodes[name] for name in names])

    def _see_stage(self, conductor: Conductor, lanes: Sequence[Lane] | None, now_s: float) -> None:
        plan = self._rules.plan
        job = None if plan is None else self._job
        stage = 0 if job is None else find_stage(job.stages, lanes, conductor.part)
        if stage == self._stage:
            return
        self._see_nodes(now_s)
        self._account.begin_stage(stage, now_s)
        self._stage = stage
        self._log = _StageLog()
        self._idle_since.clear()
        if plan is not None and stage < len(plan.stages):
            nodes = _count_nodes(self._rules.count_wanted(stage))
            costs = self._account.sum_up(self._rules, self._job, now_s, lanes).describe()
            self._tell(conductor, f"stage {stage + 1} of {len(plan.stages)}: {nodes} by the plan; {costs}")
        elif plan is None:
            told = f"{_count_nodes(self._rules.num_nodes)} throughout: {NO_PLAN}"
            told += "" if self._deadline_s is None else "; nothing is done to keep to the deadline"
            self._tell(conductor, told)

    def _see_idle(self, place: Workplace, now_s: float) -> None:
        """Note since when nodes that have joined have nothing to do.

        Raises:
            StudyError: None joins.
        """
        works = place.see_nodes()
        self._joined = works.keys() & self._nodes.keys()
        instance = self._rules.instance
        # It may take hours until a spot instance is to be had, or a job of a batch system has its turn.
        is_queued = all(node.state is NodeState.QUEUED for node in self._nodes.values())
        is_waiting = is_queued if self._nodes else instance.is_spot
        if not self._joined_s or self._joined or is_waiting:
            self._joined_s = now_s
        elif now_s - self._joined_s > instance.provision_s + instance.initialise_s + JOIN_S:
            raise StudyError(
                f"no node has joined the Ray cluster for {now_s - self._joined_s:.0f} s, and {len(self._nodes)} were "
                "launched; see that they can reach its head, and whether headwater cluster ls has them"
            )
        for name in self._nodes:
            if works.get(name) is False:
                self._idle_since.setdefault(name, now_s)
            else:
                self._idle_since.pop(name, None)

    def _see_notices(self, conductor: Conductor, place: Workplace, now_s: float) -> None:
        """Have what trains on nodes that will be taken back leave at its next report."""
        taken = {name: node.taken_s for name, node in self._nodes.items() if name not in self._leaving}
        for name, taken_s in taken.items():
            if taken_s is not None:
                left_s = max(taken_s - now_s, 0.0)
                self._tell(conductor, f"node {name} will be taken back in {left_s:.0f} s; its trials go on elsewhere")
                self._leaving.add(name)
                conductor.regroup(place.let_go([name]))

    def _choose_fleet(self, conductor: Conductor, lanes: Sequence[Lane] | None, now_s: float) -> None:
        """Decide where further nodes come from, and say so where that has changed."""
        stage, plan, job = max(self._stage, 0), self._rules.plan, self._job
        is_known = job is not None and plan is not None and stage < len(plan.stages)
        is_available, age_s = self._market.look(now_s)
        progress = SpotProgress(
            at_s=self._account.count_seconds(now_s),
            stage=stage,
            share_left=measure_left(plan, job, stage, lanes) if plan and job and is_known else 1.0,
            num_on_demand=sum(not node.is_spot for node in self._nodes.values()),
            is_available=is_available,
            age_s=age_s,
        )
        if is_known:
            self._choose_rule(conductor, stage)
        self._choice = choose_fleet(self._rules, job, self._deadline_s, progress, self._rule)
        is_spot = self._rules.instance.is_spot and (self._rules.plan is None or self._rules.plan.is_spot)
        told = MARKET_NOTES.get(self._choice) if is_spot else None
        if told is not None and told != self._told:
            self._tell(conductor, told)
            self._told = told

    def _choose_rule(self, conductor: Conductor, stage: int) -> None:
        """Choose by which rule spot nodes are held, where what it is for has changed."""
        need = find_need(self._rules.plan, self._job, self._deadline_s, stage)
        if need is None or need == self._need:
            return
        self._need = need
        chosen = choose_by_history(need, self._rules.instance)
        self._rule = make_rule(need, self._rules.instance, chosen)
        if chosen is not None and chosen.told != self._told_rule:
            self._tell(conductor, chosen.told)
            self._told_rule = chosen.told

    def _act(self, conductor: Conductor, place: Workplace, now_s: float) -> None:
        held = tuple(
            HeldNode(
                name=name,
                launched_s=node.launched_s,
                idle_since_s=self._idle_since.get(name),
                has_joined=name in self._joined,
                is_spot=node.is_spot,
            )
            for name, node in self._nodes.items()
            if name not in self._leaving
        )
        assert self._choice is not None
        situation = Situation(
            now_s=now_s,
            stage=max(self._stage, 0),
            nodes=held,
            num_idled=self._log.num_idled,
            cost_dollars=self._account.add_up(now_s),
            choice=self._choice,
        )
        step = choose_step(self._rules, situation)
        if step.leaving:
            self._leaving.update(step.leaving)
            self._log.num_idled += len(step.idled)
            conductor.regroup(place.let_go(step.leaving))
        self._release(place, now_s)
        if step.is_unaffordable and self.end_reason is None and self.is_waiting():
            self.end_reason = f"the budget of ${self._rules.budget_dollars:.2f} has no room for a node"
            self._tell(conductor, self.end_reason)
        if step.num_launched and self.find_end() is None:
            self._launch(step.num_launched, self._choice.buy, now_s)

    def _launch(self, count: int, market: Market, now_s: float) -> None:
        on_demand = self._rules.instance.is_spot and market is Market.ON_DEMAND
        num_launched = self._cluster.launch(count, on_demand=on_demand)
        if not on_demand:
            self._market.see(now_s, has_all=num_launched >= count)
        self._list_s = 0.0

    def _release(self, place: Workplace, now_s: float) -> None:
        """Give back nodes that are to go and on which nothing trains any more; all, where the budget is gone."""
        works = place.see_nodes()
        budget = self._rules.own_budget_dollars
        is_broke = budget is not None and self.end_reason is not None and self._account.add_up(now_s + 1) >= budget
        gone = [name for name in self._nodes if is_broke or (name in self._leaving and not works.get(name, False))]
        if not gone:
            return
        for name in gone:
            if not works.get(name, False):
                place.part_from(name)
        self._give_back(gone)
        self._see_nodes(now_s)

    def _follow_up(self, conductor: Conductor, lanes: Sequence[Lane], now_s: float) -> None:
        """Plan what is left anew where a stage takes longer than was predicted."""
        job, plan = self._job, self._rules.plan
        if job is None or plan is None or not 0 <= self._stage < len(plan.stages):
            return
        num_left = count_left(job.stages, self._stage, lanes)
        log, wanted = self._log, self._rules.count_wanted(self._stage)
        if len(self._joined) < wanted or not log.has_reported:
            log.full_s = None
        elif log.full_s is None:
            log.full_s, log.num_epochs = now_s, num_left
        if log.full_s is None:
            return
        whole = job.stages[self._stage].num_trials * job.stages[self._stage].num_epochs
        share = (log.num_epochs - num_left) / whole
        lag = measure_lag(job, self._stage, plan.stages[self._stage].num_devices, share, now_s - log.full_s)
        if lag <= BEHIND:
            return
        self._job = job = slow_down(job, lag)
        ages_s = [now_s - node.launched_s for node in self._nodes.values()]
        rest = plan_rest(job, self._stage, num_left, self._limits_left(job, now_s), hold(ages_s))
        self._rules = replace(self._rules, plan=replace(plan, stages=(*plan.stages[: self._stage], *rest)))
        self._account.num_replanned += 1
        log.full_s = None
        sizes = ", ".join(str(stage.num_instances) for stage in rest)
        told = f"stage {self._stage + 1} takes {lag:.1f} times as long as planned; by a new plan the nodes are {sizes}"
        self._tell(conductor, told)

    def _limits_left(self, job: Job, now_s: float) -> Limits:
        budget, deadline = self._rules.own_budget_dollars, self._deadline_s
        limits = Limits(
            deadline_s=None if deadline is None else max(deadline - self._account.count_seconds(now_s), 0.0),
            budget_dollars=None if budget is None else max(budget - self._account.add_up(now_s), 0.0),
        )
        return keep_slack(job, limits)

    def _show(self, conductor: Conductor, now_s: float, lanes: Sequence[Lane] | None) -> None:
        self._show_s = now_s + SHOW_S
        conductor.hear(Spent(spending=self._account.sum_up(self._rules, self._job, now_s, lanes)))

    def _tell(self, conductor: Conductor, text: str) -> None:
        conductor.hear(Noted(key=NO_KEY, text=text))


def _count_nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _find_prices(rules: Rules, job: Job | None, deadline_s: float | None) -> tuple[tuple[float, float], ...]:
    """Return what the whole would cost by other deadlines; nothing where there is no plan, or one for a rest alone."""
    if job is None or rules.plan is None or rules.earlier is not None:
        return ()
    return trace_prices(job, list_deadlines(job, deadline_s or rules.plan.seconds))
