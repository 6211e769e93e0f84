"""What a run on nodes has taken and cost, as a whole and by stages, beside what was planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.cloud.bill import Stay, add_up
from headwater.cloud.following import Rules, count_stage_left
from headwater.cloud.protocol import Node, NodeState
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import SECONDS_PER_HOUR, Job
from headwater.trials import Lane, NodeStay, Spending, StageSpending


@dataclass(slots=True)
class _StageStart:
    """Where the account stood when a stage began."""

    begin_s: float = 0.0
    begin_dollars: float = 0.0
    num_nodes: int = 0


class RunAccount:
    """Adds up the stays of nodes."""

    def __init__(self, rules: Rules, deadline_s: float | None, prices: tuple[tuple[float, float], ...] = ()) -> None:
        self.num_replanned = 0
        """How often the rest was planned anew."""
        self._instance = rules.instance
        self._deadline_s = deadline_s
        self._prices = prices
        self._first_plan = rules.plan
        self._stays: dict[str, Stay] = {}
        self._begin_s: float | None = None
        """When the first nodes were asked for."""
        self._stage = -1
        self._start = _StageStart()
        self._ended = _recall_stages(rules)

    def begin(self, now_s: float) -> None:
        """Begin to count; called again it changes nothing."""
        self._begin_s = now_s if self._begin_s is None else self._begin_s

    def count_seconds(self, now_s: float) -> float:
        """Return how long the run takes by now."""
        return now_s - (now_s if self._begin_s is None else self._begin_s)

    def see_nodes(self, nodes: Mapping[str, Node], given_back: Collection[str], now_s: float) -> None:
        """Take in which nodes there are; those that are gone and were not given back are lost."""
        for node in nodes.values():
            if node.state not in (NodeState.QUEUED, NodeState.PENDING) and node.id not in self._stays:
                begin_s = min(node.launched_s, now_s)
                self._stays[node.id] = Stay(node=node.id, begin_s=begin_s, is_spot=node.is_spot)
        for name, stay in self._stays.items():
            if stay.end_s is None and name not in nodes:
                self._stays[name] = replace(stay, end_s=now_s, is_lost=name not in given_back)
        self._start.num_nodes = max(self._start.num_nodes, len(nodes))

    def add_up(self, now_s: float) -> float:
        """Return what must be paid if all nodes go now."""
        return add_up(self._stays.values(), self._instance, now_s)

    @property
    def dollars_per_second(self) -> float:
        """What the nodes cost that are held."""
        held = (stay for stay in self._stays.values() if stay.end_s is None)
        return sum(self._instance.price(is_spot=stay.is_spot) for stay in held)

    def begin_stage(self, stage: int, now_s: float) -> None:
        """Note that a stage begins, and what the one before came to."""
        self.end_stage(now_s)
        num_held = sum(stay.end_s is None for stay in self._stays.values())
        self._stage, self._start = stage, _StageStart(now_s, self.add_up(now_s), num_held)

    def end_stage(self, now_s: float) -> None:
        """Note what the stage at hand came to."""
        plan = self._first_plan
        if plan is None or not 0 <= self._stage < len(plan.stages) or self._stage in self._ended:
            return
        self._ended[self._stage] = replace(
            self._outline(self._stage),
            num_nodes=self._start.num_nodes,
            seconds=now_s - self._start.begin_s,
            cost_dollars=self.add_up(now_s) - self._start.begin_dollars,
        )

    def sum_up(self, rules: Rules, job: Job | None, now_s: float, lanes: Sequence[Lane] | None) -> Spending:
        """Return where the run stands, by the plan that it follows now and what is left of its stage."""
        cost, seconds = self.add_up(now_s), self.count_seconds(now_s)
        spots = [stay for stay in self._stays.values() if stay.is_spot]
        spending = Spending(
            seconds=seconds,
            cost_dollars=cost,
            num_nodes=sum(stay.end_s is None for stay in self._stays.values()),
            deadline_s=self._deadline_s,
            budget_dollars=rules.budget_dollars,
            stage=max(self._stage, 0),
            num_replanned=self.num_replanned,
            earlier_s=0.0 if rules.earlier is None else rules.earlier.total_s,
            earlier_dollars=rules.earlier_dollars,
            spot_dollars=add_up(spots, self._instance, now_s) if self._instance.is_spot else None,
            num_lost=sum(stay.is_lost for stay in self._stays.values()),
            stays=tuple(map(self._describe, self._stays.values())),
            prices=self._prices,
        )
        first = self._first_plan
        if first is None or rules.plan is None or job is None:
            return spending
        left_s, left_dollars = self._count_left(rules, job, lanes)
        return replace(
            spending,
            forecast_s=seconds + left_s,
            forecast_dollars=cost + left_dollars,
            planned_s=first.seconds,
            planned_dollars=first.cost_dollars,
            stages=tuple(self._ended.get(number, self._outline(number)) for number in range(len(first.stages))),
        )

    def _count_left(self, rules: Rules, job: Job, lanes: Sequence[Lane] | None) -> tuple[float, float]:
        """Return what the stages take and cost that are left, at the prices of the nodes that are held."""
        assert rules.plan is not None
        present = max(self._stage, 0)
        left_s = left_dollars = 0.0
        for number, stage in enumerate(rules.plan.stages[present:], start=present):
            share = measure_left(rules.plan, job, number, lanes) if number == self._stage else 1.0
            left_s += share * stage.seconds
            left_dollars += share * stage.cost_dollars
        num_held = sum(stay.end_s is None for stay in self._stays.values())
        planned = num_held * rules.plan.instance.dollars_per_second
        return left_s, left_dollars * (self.dollars_per_second / planned if planned else 1.0)

    def _outline(self, number: int) -> StageSpending:
        assert self._first_plan is not None
        stage = self._first_plan.stages[number]
        return StageSpending(
            num_trials=stage.num_trials,
            num_epochs=stage.num_epochs,
            planned_nodes=stage.num_instances,
            planned_s=stage.seconds,
            planned_dollars=stage.cost_dollars,
        )

    def _describe(self, stay: Stay) -> NodeStay:
        begin_s = self._begin_s or 0.0
        return NodeStay(
            node=stay.node,
            begin_s=stay.begin_s - begin_s,
            end_s=None if stay.end_s is None else stay.end_s - begin_s,
            dollars_per_hour=self._instance.price(is_spot=stay.is_spot) * SECONDS_PER_HOUR,
            minimum_s=self._instance.minimum_s,
            launch_dollars=self._instance.launch_dollars,
            is_spot=stay.is_spot,
            is_lost=stay.is_lost,
        )


def measure_left(plan: ElasticPlan, job: Job, stage: int, lanes: Sequence[Lane] | None) -> float:
    """Return what share of a stage is left, if these lanes are in it; all where it is not known which there are.

    Where only the rest of a stage was planned, because the run fell behind or was resumed, it is the share of that.
    """
    whole = plan.stages[stage].num_trials * plan.stages[stage].num_epochs
    return min(count_stage_left(job, stage, lanes) / whole, 1.0)


def _recall_stages(rules: Rules) -> dict[int, StageSpending]:
    """Return what stages came to that were done before this run, by their numbers."""
    if rules.earlier is None or rules.plan is None or len(rules.earlier.stages) != len(rules.plan.stages):
        return {}
    stages = enumerate(zip(rules.earlier.stages, rules.plan.stages, strict=True))
    return {number: had for number, (had, planned) in stages if not planned.num_instances and had.seconds is not None}
