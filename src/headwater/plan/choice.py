"""Which type of instance, and on demand or at the spot price: the best plan over all that can be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.plan.elastic import Limits, Prediction, plan_greedily, plan_naively, plan_static
from headwater.plan.elastic_plan import ElasticPlan, lay_out
from headwater.plan.frontier import plan_exactly
from headwater.plan.jobs import Job

MOST_STARTS = 300_000
"""An exact plan is given up where a stage has more starts of plans than these to follow, which takes ten seconds."""
GREEDY_AT_WORST = 1.1
"""A greedy plan that is worse than another type's best by more than this is no better by an exact search: the worst gap
in `benchmarks/rubberband.md` is 5 %."""

Planner = Callable[[Job, Limits], Prediction | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The plans of one job, each the best of its way; None where a way cannot keep to the limits."""

    job: Job
    static: Prediction | None
    naive: Prediction | None
    elastic: Prediction | None
    """By the greedy search."""
    exact: Prediction | None
    """None also where it would take too long to find."""

    @property
    def best(self) -> Prediction | None:
        """The plan to carry out."""
        return self.exact if self.exact is not None else self.elastic

    def lay_out(self) -> ElasticPlan | None:
        """Return the plan to carry out, stage by stage."""
        return None if self.best is None else lay_out(self.job, self.best.devices)

    def measure_gap(self, limits: Limits) -> float | None:
        """Return by what share the greedy plan is worse than the exact one; None where one of them is missing."""
        if self.elastic is None or self.exact is None or not limits.rank(self.exact)[0]:
            return None
        return limits.rank(self.elastic)[0] / limits.rank(self.exact)[0] - 1


def choose_plan(jobs: Sequence[Job], limits: Limits) -> tuple[Chosen | None, dict[str, Prediction | None]]:
    """Return the plans for the best of these jobs, which differ in their instances, and the greedy plan of each.

    None where no plan keeps to the limits on any of them.
    """
    greedy = {name_rent(job): plan_greedily(job, keep_slack(job, limits)) for job in jobs}
    found = [(plan, job) for job in jobs if (plan := greedy[name_rent(job)]) is not None]
    if not found:
        exact = [one for job in jobs if (one := plan_all(job, limits)).exact is not None]
        return min(exact, key=lambda one: _rank(one, limits), default=None), greedy
    best: Chosen | None = None
    for plan, job in sorted(found, key=lambda one: limits.rank(one[0])):
        if best is not None and _is_beyond(plan, best, limits):
            continue
        one = plan_all(job, limits)
        best = one if best is None or _rank(one, limits) < _rank(best, limits) else best
    return best, greedy


def plan_all(job: Job, limits: Limits) -> Chosen:
    """Return the plans of a job in all ways there are."""
    limits = keep_slack(job, limits)
    ways: Mapping[str, Planner] = {"static": plan_static, "naive": plan_naively, "elastic": plan_greedily}
    plans = {name: plan(job, limits) for name, plan in ways.items()}
    return Chosen(job=job, exact=plan_exactly(job, limits, MOST_STARTS), **plans)


def keep_slack(job: Job, limits: Limits) -> Limits:
    """Return the limits for a plan: where instances may be taken back, a change to on demand must fit in at the end."""
    if not job.instance.is_spot or limits.deadline_s is None:
        return limits
    return replace(limits, deadline_s=max(0.0, limits.deadline_s - 2 * job.switch_s))


def name_rent(job: Job) -> str:
    """Return what tells the instances of a job from others."""
    return f"{job.instance.name} spot" if job.instance.is_spot else job.instance.name


def _is_beyond(greedy: Prediction, best: Chosen, limits: Limits) -> bool:
    """Tell whether no exact plan of a job can beat the best by now, for its greedy plan is too much worse."""
    assert best.best is not None
    return limits.rank(greedy)[0] > GREEDY_AT_WORST * limits.rank(best.best)[0]


def _rank(chosen: Chosen, limits: Limits) -> tuple[float, float]:
    assert chosen.best is not None
    return limits.rank(chosen.best)
