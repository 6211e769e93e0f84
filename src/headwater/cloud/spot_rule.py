"""Where the nodes of a run come from, at the spot price or on demand: how far it is against its deadline decides."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.cloud.following import Rules
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import Instance, Job
from headwater.plan.spot import (
    ALL_ON_DEMAND,
    ALWAYS_ON_DEMAND,
    FleetChoice,
    FleetState,
    Market,
    SpotRule,
    SpotTask,
    choose_markets,
    follow_progress,
)
from headwater.plan.spot_choice import SpotChoice, choose_rule
from headwater.plan.spot_odds import Prices

AWAY_S = 30.0
"""So long are spot instances taken to be away after none was to be had."""
STEP_S = 2.0
"""So long may it take until a loss is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotProgress:
    """How far a run by a plan is."""

    at_s: float
    """How long it runs."""
    stage: int
    share_left: float
    """How much of the stage is left that it is in, of one."""
    num_on_demand: int
    is_available: bool
    """Whether spot instances are to be had, as far as is known."""
    age_s: float = 0.0
    """For how long that is so."""


@dataclass(slots=True)
class SpotMarket:
    """What a run has seen of spot instances: it knows only by asking for some."""

    since_s: float
    """Since when they have been there, or away."""
    is_away: bool = False
    again_s: float = 0.0
    """Where they are away: when they are taken to be there again, and asked for."""

    def see(self, now_s: float, *, has_all: bool) -> None:
        """Take in whether all could be had that were asked for just now."""
        if self.is_away == has_all:
            self.is_away, self.since_s = not has_all, now_s
        self.again_s = now_s + AWAY_S

    def look(self, now_s: float) -> tuple[bool, float]:
        """Return whether there are some, and for how many seconds that has been so."""
        is_available = not self.is_away or now_s >= self.again_s
        return is_available, now_s - (self.again_s if self.is_away and is_available else self.since_s)


@dataclass(frozen=True, slots=True)
class SpotNeed:
    """What the rule is chosen for by which a run has spot nodes."""

    task: SpotTask
    num_nodes: int
    """The most that a stage wants which is not over."""


def find_need(plan: ElasticPlan | None, job: Job | None, deadline_s: float | None, stage: int = 0) -> SpotNeed | None:
    """Return what a rule is to be chosen for; None where there is no choice.

    What the whole takes on instances that nobody takes back is the work. Without a deadline spot instances are waited
    for, and one that leaves no time for a loss is kept on demand.
    """
    if plan is None or job is None or deadline_s is None or plan.instance.find_on_demand() is None:
        return None
    if plan.seconds + job.switch_s > deadline_s:
        return None
    num_nodes = max((one.num_instances for one in plan.stages[stage:]), default=1)
    return SpotNeed(SpotTask(work_s=plan.seconds, deadline_s=deadline_s, switch_s=job.switch_s), num_nodes)


def choose_by_history(need: SpotNeed, instance: Instance) -> SpotChoice | None:
    """Return what decides when a run has spot nodes; None where nothing is known of their past."""
    history = instance.spot_history
    return None if history is None else choose_rule(history, need.task, need.num_nodes)


def make_rule(need: SpotNeed, instance: Instance, choice: SpotChoice | None) -> SpotRule:
    """Return the rule for a run, which may take some seconds to work out."""
    on_demand = instance.find_on_demand()
    if choice is None or on_demand is None:
        return follow_progress
    prices = Prices(spot=instance.dollars_per_hour, on_demand=on_demand.dollars_per_hour)
    return choice.make_rule(need.task, prices)


def tell_rule(plan: ElasticPlan, job: Job, deadline_s: float | None) -> str | None:
    """Say what will decide when a run by a plan has spot nodes; None where it has none."""
    if not plan.is_spot:
        return None
    need = find_need(plan, job, deadline_s)
    if need is None:
        return "spot nodes are waited for, since there is no deadline, or no price on demand"
    choice = choose_by_history(need, plan.instance)
    return "spot nodes are chosen by uniform progress, without a spot history" if choice is None else choice.told


def choose_fleet(
    rules: Rules,
    job: Job | None,
    deadline_s: float | None,
    progress: SpotProgress,
    rule: SpotRule = follow_progress,
) -> FleetChoice:
    """Decide where nodes come from: by a rule, where there is a plan with a deadline to keep.

    Without one, spot instances are waited for. What of the plan has been given to all that is done is the progress.
    """
    plan, instance = rules.plan, rules.instance
    if not instance.is_spot or (plan is not None and not plan.is_spot):
        return ALWAYS_ON_DEMAND
    if plan is None or job is None or deadline_s is None or instance.find_on_demand() is None:
        return FleetChoice(buy=Market.SPOT if progress.is_available else Market.WAIT)
    need = find_need(plan, job, deadline_s)
    if need is None:
        return ALL_ON_DEMAND
    state = FleetState(
        at_s=progress.at_s,
        done_s=count_done(plan, progress.stage, progress.share_left),
        num_on_demand=progress.num_on_demand,
        is_available=progress.is_available,
        age_s=progress.age_s,
    )
    return choose_markets(need.task, state, step_s=STEP_S, rule=rule)


def count_done(plan: ElasticPlan, stage: int, share_left: float) -> float:
    """Return how many seconds of a plan are behind a run that has such a share of a stage left."""
    before_s = sum(one.seconds for one in plan.stages[:stage])
    return before_s + (1 - min(share_left, 1.0)) * plan.stages[stage].seconds if stage < len(plan.stages) else before_s
