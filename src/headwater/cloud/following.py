"""What a run on a cluster does next: how many nodes it wants now, which go, whether it must end, when to plan anew.

Everything here is a function of values. Whoever acts on it has the clock and the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import ceil, prod

from headwater.errors import PlanError
from headwater.plan.choice import keep_slack
from headwater.plan.elastic import Holding, Limits, list_options, train_seconds
from headwater.plan.elastic_plan import ElasticPlan, PlannedStage, lay_out, next_size
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import Instance, Job, JobStage, Part
from headwater.plan.spot import ALWAYS_ON_DEMAND, FleetChoice, Market
from headwater.trials import Lane, Spending

IDLE_S = 60.0
"""A node on which nothing has trained for so long is given back."""
LEAVING_S = 10.0
"""So long may it take from the wish to end a run until nothing is charged any more, reports not counted."""
BEHIND = 1.2
"""A stage that takes so many times what was predicted is planned anew,"""
LEAST_DONE = 0.2
"""once so much of it is done: the first epochs of a process take longer."""
TOLERANCE = 1e-6
"""A limit is kept to where no more than this, in seconds or dollars, is beyond it."""
MOST_PLANS = 5000
"""Up to so many plans for what is left are compared one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a run on a cluster keeps to."""

    instance: Instance
    plan: ElasticPlan | None = None
    num_nodes: int = 1
    """How many nodes it has where there is no plan."""
    budget_dollars: float | None = None
    idle_s: float = IDLE_S
    earlier: Spending | None = None
    """What the study has cost before this run; None where it is new."""

    @property
    def earlier_dollars(self) -> float:
        """What all earlier runs have cost."""
        return 0.0 if self.earlier is None else self.earlier.total_dollars

    @property
    def own_budget_dollars(self) -> float | None:
        """What earlier runs have left of the budget; None where there is none."""
        return None if self.budget_dollars is None else max(self.budget_dollars - self.earlier_dollars, 0.0)

    def count_wanted(self, stage: int) -> int:
        """Return how many nodes a stage is to have."""
        return self.num_nodes if self.plan is None else next_size(self.plan, stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNode:
    """A node that was asked for and is not about to go."""

    name: str
    launched_s: float
    idle_since_s: float | None = None
    """Since when nothing trains there; None where something does, or it has not joined yet."""
    has_joined: bool = True
    is_spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Where a run stands."""

    now_s: float
    stage: int
    """Which stage of the plan it is in, counted from 0."""
    nodes: tuple[HeldNode, ...]
    num_idled: int = 0
    """How many nodes were given back in this stage because they were idle."""
    cost_dollars: float = 0.0
    """What must be paid if all nodes go now."""
    choice: FleetChoice = ALWAYS_ON_DEMAND
    """Where further nodes come from, and which of those that are held are to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done with the nodes."""

    num_launched: int = 0
    leaving: tuple[str, ...] = ()
    """Nodes that go when what trains there has left."""
    idled: tuple[str, ...] = ()
    """Those of them that go because they are idle."""
    is_unaffordable: bool = False
    """Whether there is nothing to train on, and the budget has no room for a node."""


def find_stage(stages: Sequence[JobStage], lanes: Sequence[Lane] | None, part: Part = Part.SEARCH) -> int:
    """Return in which of the stages these lanes of a part are, those that wait or train; who is behind decides.

    Stages follow one another, and each has its epochs after those before it in its bracket. The number of stages where
    no lane is left; the first of the part where it is not known which lanes there are.
    """
    places = [place for place, stage in enumerate(stages) if stage.part >= part]
    if lanes is None:
        return places[0] if places else len(stages)
    own = [place for place in places if stages[place].part is part]
    if not lanes or not own:
        return len(stages)
    ends = _list_ends(stages)
    return min(_find_place(stages, ends, own, lane) for lane in lanes)


def count_left(stages: Sequence[JobStage], stage: int, lanes: Sequence[Lane]) -> int:
    """Return how many epochs are left of the stage that these lanes are in, those of all trials added up."""
    ends = _list_ends(stages)
    return sum(max((ends[stage] if lane.until is None else lane.until) - lane.start_epoch, 0) for lane in lanes)


def count_stage_left(job: Job, stage: int, lanes: Sequence[Lane] | None) -> int:
    """Return how many epochs are left of a stage, all where it is not known which lanes there are."""
    whole = job.stages[stage].num_trials * job.stages[stage].num_epochs
    return whole if lanes is None else count_left(job.stages, stage, lanes)


def _list_ends(stages: Sequence[JobStage]) -> list[int]:
    """Return after which epoch of its trials each stage ends."""
    ends: list[int] = []
    for place, stage in enumerate(stages):
        follows = place > 0 and (stage.part, stage.bracket) == (stages[place - 1].part, stages[place - 1].bracket)
        ends.append(stage.num_epochs + (ends[-1] if follows else 0))
    return ends


def _find_place(stages: Sequence[JobStage], ends: Sequence[int], own: Sequence[int], lane: Lane) -> int:
    """Return the stage of a lane: its number tells the bracket, and where it trains to the stage of that."""
    first = 0
    bracket: list[int] = []
    for _, places in groupby(own, key=lambda place: stages[place].bracket):
        bracket = list(places)
        if lane.number < first + stages[bracket[0]].num_trials:
            break
        first += stages[bracket[0]].num_trials
    until = ends[bracket[-1]] if lane.until is None else min(lane.until, ends[bracket[-1]])
    return next(place for place in bracket if ends[place] >= until)


def choose_step(rules: Rules, situation: Situation) -> Step:
    """Return which nodes come and go now.

    The oldest go first, as the plan has it: their minimum charge is behind them; but before them those that have not
    joined yet, and idle ones. One that was idle for too long goes in any case, and comes back with the next stage; the
    last one stays. Nodes that are to be replaced go one by one as others have joined.
    """
    replaced = situation.choice.replaced
    stale = [node for node in situation.nodes if replaced is (Market.SPOT if node.is_spot else Market.ON_DEMAND)]
    fresh = tuple(node for node in situation.nodes if node not in stale)
    step = _fill_up(rules, replace(situation, nodes=fresh))
    if not stale:
        return step
    num_ready = sum(node.has_joined and node.name not in step.leaving for node in fresh)
    num_kept = max(rules.count_wanted(situation.stage) - situation.num_idled - num_ready, 0)
    order = sorted(stale, key=lambda node: (node.has_joined, node.launched_s))
    leaving = (node.name for node in order[: max(len(order) - num_kept, 0)])
    return replace(step, leaving=(*step.leaving, *leaving), is_unaffordable=False)


def _fill_up(rules: Rules, situation: Situation) -> Step:
    """Return which nodes come and go where all that are held may stay."""
    wanted = rules.count_wanted(situation.stage)
    now_s, nodes = situation.now_s, situation.nodes
    idled = [
        node.name
        for node in nodes
        if node.idle_since_s is not None and now_s - node.idle_since_s >= rules.idle_s and wanted
    ][: max(len(nodes) - 1, 0)]
    order = sorted(nodes, key=lambda node: (node.has_joined, node.idle_since_s is None, node.launched_s))
    others = [node.name for node in order if node.name not in idled]
    num_missing = wanted - situation.num_idled - len(idled) - len(others)
    if num_missing >= 0:
        num_affordable = _count_affordable(rules, situation)
        num_bought = 0 if situation.choice.buy is Market.WAIT else num_missing
        return Step(
            num_launched=min(num_bought, num_affordable),
            leaving=tuple(idled),
            idled=tuple(idled),
            is_unaffordable=bool(num_missing and not num_affordable and not nodes),
        )
    num_kept = max(wanted - situation.num_idled - len(idled), 1 if wanted else 0)
    num_leaving = max(len(others) - num_kept, 0)
    return Step(leaving=(*idled, *others[:num_leaving]), idled=tuple(idled))


def _count_affordable(rules: Rules, situation: Situation) -> int:
    """Return how many more nodes the budget has room for, each for its minimum."""
    budget, instance = rules.own_budget_dollars, rules.instance
    if budget is None:
        return 10**9
    price = instance.price(is_spot=situation.choice.buy is not Market.ON_DEMAND)
    each = instance.minimum_s * price + instance.launch_dollars
    return 10**9 if each == 0 else max(int((budget - situation.cost_dollars) / each), 0)


def find_end(rules: Rules, dollars_per_second: float, cost_dollars: float, epoch_s: float) -> str | None:
    """Return why a run must end now so as to stay within its budget; None where it need not.

    It ends with the next reports, up to an epoch later, and the nodes are charged until then, so much a second.
    """
    budget = rules.own_budget_dollars
    if budget is None:
        return None
    to_come = dollars_per_second * (epoch_s + LEAVING_S)
    if cost_dollars + to_come <= budget:
        return None
    spent = cost_dollars + rules.earlier_dollars
    return f"the budget of ${rules.budget_dollars:.2f} has no room for another epoch; ${spent:.2f} are spent"


def measure_lag(job: Job, stage: int, num_devices: int, share_done: float, seconds: float) -> float:
    """Return how many times longer a stage takes than was predicted, by what is done of it after so many seconds."""
    if stage >= len(job.stages) or share_done < LEAST_DONE or not num_devices:
        return 1.0
    return seconds / (share_done * train_seconds(job, job.stages[stage], num_devices))


def slow_down(job: Job, factor: float) -> Job:
    """Return the job as it is when every epoch takes so many times longer."""
    by_scale = {scale: times.slow_down(factor) for scale, times in job.by_scale.items()}
    return replace(job, epoch_seconds=job.epoch_seconds.slow_down(factor), by_scale=by_scale)


def hold(ages_s: Sequence[float]) -> Holding:
    """Return what is held where nodes have been charged for so many seconds; what they have cost is not counted."""
    return Holding(tuple((age, 1) for age in sorted(ages_s)), len(ages_s))


def plan_left(job: Job, lanes: Sequence[Lane] | None, limits: Limits, part: Part = Part.SEARCH) -> ElasticPlan:
    """Plan what these lanes have left of a job, nothing being held; stages that are done hold nothing and take no time.

    Raises:
        PlanError: No plan for what is left keeps to the limits.
    """
    stage = find_stage(job.stages, lanes, part)
    rest: tuple[PlannedStage, ...] = ()
    if stage < len(job.stages):
        num_left = count_stage_left(job, stage, lanes)
        rest = plan_rest(job, stage, num_left, keep_slack(job, limits), hold(()))
    over, late, *_ = _rank(rest, limits)
    if over > TOLERANCE or late > TOLERANCE:
        asked = [] if limits.deadline_s is None else [f"a deadline of {limits.deadline_s:.0f} s"]
        asked += [] if limits.budget_dollars is None else [f"the ${limits.budget_dollars:.2f} left of the budget"]
        seconds, dollars = sum(one.seconds for one in rest), sum(one.cost_dollars for one in rest)
        raise PlanError(
            f"no plan for what is left of the study keeps to {' and '.join(asked)}: the nearest to that takes "
            f"{seconds:.0f} s for ${dollars:.2f}; allow more"
        )
    return ElasticPlan(instance=job.instance, stages=(*map(_leave_out, job.stages[:stage]), *rest))


def _leave_out(stage: JobStage) -> PlannedStage:
    """Return a stage that is done."""
    return PlannedStage(
        num_trials=stage.num_trials,
        num_epochs=stage.num_epochs,
        num_devices=0,
        num_instances=0,
        seconds=0.0,
        cost_dollars=0.0,
    )


def plan_rest(job: Job, stage: int, num_left: int, limits: Limits, holding: Holding) -> tuple[PlannedStage, ...]:
    """Plan the rest of a job anew: what is left of a stage, in epochs of all its trials, and the stages after it.

    The limits are for what is left. Where nothing keeps to them, the deadline gives way before the budget.
    """
    present = job.stages[stage]
    num_trials = min(present.num_trials, max(num_left, 1))
    rest = replace(present, num_trials=num_trials, num_epochs=max(ceil(num_left / num_trials), 1))
    left = replace(job, stages=(rest, *job.stages[stage + 1 :]))
    options = list_options(left)
    if prod(map(len, options)) <= MOST_PLANS:
        plans = [lay_out(left, devices, holding).stages for devices in product(*options)]
    else:
        found = plan_exactly(left, limits) or plan_exactly(left, Limits(budget_dollars=limits.budget_dollars))
        found = found or plan_exactly(left, Limits())
        assert found is not None
        plans = [lay_out(left, found.devices, holding).stages]
    return min(plans, key=lambda plan: _rank(plan, limits))


def _rank(plan: Sequence[PlannedStage], limits: Limits) -> tuple[float, float, float, float]:
    seconds, dollars = sum(stage.seconds for stage in plan), sum(stage.cost_dollars for stage in plan)
    over = 0.0 if limits.budget_dollars is None else max(dollars - limits.budget_dollars, 0.0)
    late = 0.0 if limits.deadline_s is None else max(seconds - limits.deadline_s, 0.0)
    if limits.deadline_s is None and limits.budget_dollars is not None:
        return over, late, seconds, dollars
    return over, late, dollars, seconds
