"""Where the nodes of a run come from, at the spot price or on demand: how far it is against its deadline decides."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.cloud.following import Rules
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import Job
from headwater.plan.spot import (
    ALL_ON_DEMAND,
    ALWAYS_ON_DEMAND,
    FleetChoice,
    FleetState,
    Market,
    SpotTask,
    choose_markets,
)

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


def choose_fleet(rules: Rules, job: Job | None, deadline_s: float | None, progress: SpotProgress) -> FleetChoice:
    """Decide where nodes come from: by uniform progress, where there is a plan with a deadline to keep.

    Without one, spot instances are waited for. What the whole takes on instances that nobody takes back is the work,
    and what of that the plan has given to all that is done is the progress.
    """
    plan, instance = rules.plan, rules.instance
    if not instance.is_spot or (plan is not None and not plan.is_spot):
        return ALWAYS_ON_DEMAND
    if plan is None or job is None or deadline_s is None or instance.find_on_demand() is None:
        return FleetChoice(buy=Market.SPOT if progress.is_available else Market.WAIT)
    if plan.seconds + job.switch_s > deadline_s:
        return ALL_ON_DEMAND
    task = SpotTask(work_s=plan.seconds, deadline_s=deadline_s, switch_s=job.switch_s)
    state = FleetState(
        at_s=progress.at_s,
        done_s=count_done(plan, progress.stage, progress.share_left),
        num_on_demand=progress.num_on_demand,
        is_available=progress.is_available,
    )
    return choose_markets(task, state, step_s=STEP_S)


def count_done(plan: ElasticPlan, stage: int, share_left: float) -> float:
    """Return how many seconds of a plan are behind a run that has such a share of a stage left."""
    before_s = sum(one.seconds for one in plan.stages[:stage])
    return before_s + (1 - min(share_left, 1.0)) * plan.stages[stage].seconds if stage < len(plan.stages) else before_s
