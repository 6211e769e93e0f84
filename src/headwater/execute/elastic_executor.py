"""The executor of a plan: nodes of a cluster come and go while a study trains on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from headwater.cloud.following import IDLE_S, Rules, plan_left
from headwater.cloud.protocol import Cluster
from headwater.conduct.protocol import Conductor
from headwater.errors import PlanError
from headwater.execute.node_keeper import NodeKeeper
from headwater.execute.ray_connection import import_ray
from headwater.execute.ray_executor import RayExecutor
from headwater.plan.choice import choose_plan
from headwater.plan.elastic import Limits, plan_fastest, plan_greedily
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import Instance, Job
from headwater.settings import read_number, read_whole
from headwater.trials import Device, Spending

FREE = Instance(name="node", num_devices=1, dollars_per_hour=0.0, minimum_s=0.0)
"""A node that costs nothing."""


class ElasticExecutor:
    """Trains on a Ray cluster that has the nodes which the plan of a search gives to its stage.

    Args:
        cluster: Where nodes come from.
        job: The stages of the search, how long epochs take and what a node costs; from this the cheapest plan within
            the limits is made. None: there is no plan, and `num_nodes` are launched.
        deadline_s: When it is to be done, in seconds from the beginning of the run; the plan keeps to it, and is made
            anew if a stage falls behind.
        budget_dollars: What may be spent, in all runs of the study. The run ends before it is exceeded.
        num_nodes: How many nodes to have where there is no plan.
        instance: What a node costs where there is no plan.
        idle_s: After how many seconds an idle node is given back.
        kind: What trains, "cpu" or "cuda".

    A study that is resumed has a plan for what its trials have left, made when the run begins.

    Raises:
        PlanError: The stages do not follow one another.
    """

    def __init__(  # noqa: PLR0913 - what a plan is made of
        self,
        cluster: Cluster,
        job: Job | None = None,
        *,
        deadline_s: float | None = None,
        budget_dollars: float | None = None,
        num_nodes: int = 1,
        instance: Instance = FREE,
        idle_s: float = IDLE_S,
        kind: str = "cpu",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.earlier: Spending | None = None
        """What the study has cost that is resumed; None for a new one. Whoever runs a study sets it."""
        if job is not None:
            _require_order(job)
        self._limits = Limits(deadline_s=deadline_s, budget_dollars=budget_dollars)
        self._cluster = cluster
        self._job = job
        self._rules = Rules(
            instance=instance if job is None else job.instance,
            num_nodes=read_whole("num_nodes", num_nodes),
            budget_dollars=budget_dollars,
            idle_s=read_number("idle_s", idle_s, 0),
        )
        self._kind = kind
        self._clock = clock
        self._keeper: NodeKeeper | None = None
        self._ray: RayExecutor | None = None

    @property
    def kind(self) -> str:
        """What its nodes train on, whatever this machine has."""
        return self._kind

    @property
    def is_planned(self) -> bool:
        """Whether there are stages to make a plan for."""
        return self._job is not None

    @cached_property
    def plan(self) -> ElasticPlan | None:
        """What a new study is run by; None where there is no job.

        Raises:
            PlanError: No plan keeps to the limits.
        """
        return None if self._job is None else _make_plan(self._job, self._limits)

    def list_devices(self) -> Sequence[Device]:
        """Return the devices of the first stage, as they are planned: none is launched before the run begins.

        What is left of a study that is resumed is not known yet: it has as many as there are without a plan.

        Raises:
            PlanError: No plan keeps to the limits.
        """
        rules = self._rules if self.earlier is not None else replace(self._rules, plan=self.plan)
        num_devices = rules.count_wanted(0) * rules.instance.num_devices
        return [Device(name=f"node/{self._kind}:{place}", kind=self._kind) for place in range(num_devices)]

    def find_end(self) -> str | None:
        """Return why the run must end, for its budget; None where it need not."""
        return None if self._keeper is None else self._keeper.find_end()

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way; then no node is left.

        Raises:
            PlanError: No plan for what is left keeps to the limits; nothing is launched then.
            StudyError: Ray is not installed, or the cluster refuses to launch nodes.
        """
        import_ray()  # before anything is launched
        plan = self._find_plan(conductor)
        rules = replace(self._rules, earlier=self.earlier, plan=plan)
        job = self._job if self._job is None or plan is None else replace(self._job, instance=plan.instance)
        address = self._cluster.start(conductor.name)
        deadline_s = self._limits.deadline_s
        self._keeper = NodeKeeper(self._cluster, rules, job, deadline_s=deadline_s, clock=self._clock)
        self._ray = RayExecutor(address, kind=self._kind, keeper=self._keeper)
        try:
            self._ray.run(conductor)
            self._keeper.finish(conductor)
        finally:
            self.close()

    def _find_plan(self, conductor: Conductor) -> ElasticPlan | None:
        if self._job is None or self.earlier is None:
            return self.plan
        lanes, part = conductor.list_lanes(), conductor.part
        budget_dollars = replace(self._rules, earlier=self.earlier).own_budget_dollars
        limits = replace(self._limits, budget_dollars=budget_dollars)
        on_demand = self._job.instance.find_on_demand()
        if on_demand is None:
            return plan_left(self._job, lanes, limits, part)
        try:
            return plan_left(self._job, lanes, limits, part)
        except PlanError:
            return plan_left(replace(self._job, instance=on_demand), lanes, limits, part)

    def close(self) -> None:
        """Give all nodes back."""
        ray, self._ray = self._ray, None
        try:
            if ray is not None:  # an autoscaler can be asked only while there is a connection
                self._cluster.release(self._cluster.list_nodes())
        finally:
            if ray is not None:
                ray.close()
            self._cluster.close()


def _require_order(job: Job) -> None:
    """Refuse stages of which a lane does not tell which one it is in."""
    places = [(stage.part, stage.bracket) for stage in job.stages]
    for before, after in pairwise(job.stages):
        if (before.part, before.bracket) == (after.part, after.bracket) and before.num_trials < after.num_trials:
            raise PlanError(
                f"a stage of {after.num_trials} trials follows one of {before.num_trials} in the same bracket; number "
                "brackets, JobStage(bracket=1, ...), and have the search run one after the other, as "
                "Hyperband(concurrency=1) does"
            )
    if places != sorted(places):
        raise PlanError("the stages are not in order; those of the search come first, bracket by bracket")


def _make_plan(job: Job, limits: Limits) -> ElasticPlan:
    """Return the best plan; of spot instances, or on demand where the deadline leaves no time for interruptions."""
    on_demand = job.instance.find_on_demand()
    chosen, _ = choose_plan([job], limits)
    if chosen is None and on_demand is not None:
        chosen, _ = choose_plan([replace(job, instance=on_demand)], limits)
    plan = None if chosen is None else chosen.lay_out()
    if plan is not None:
        return plan
    fastest, cheapest = plan_fastest(job), plan_greedily(job, Limits())
    assert cheapest is not None
    asked = [] if limits.deadline_s is None else [f"a deadline of {limits.deadline_s:.0f} s"]
    asked += [] if limits.budget_dollars is None else [f"a budget of ${limits.budget_dollars:.2f}"]
    raise PlanError(
        f"no plan keeps to {' and '.join(asked)}: the fastest takes {fastest.seconds:.0f} s for "
        f"${fastest.cost_dollars:.2f}, the cheapest {cheapest.seconds:.0f} s for ${cheapest.cost_dollars:.2f}; "
        "allow more, or plan fewer trials or epochs"
    )
