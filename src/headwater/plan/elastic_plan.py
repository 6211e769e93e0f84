"""A plan as whoever carries it out needs it: how many instances each stage has, and what it should take and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import PlanError
from headwater.plan.elastic import Holding
from headwater.plan.jobs import Instance, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """What one stage gets, takes and costs."""

    num_trials: int
    num_epochs: int
    num_devices: int
    """In all; each trial has the same share of them, or several trials have one in turn or as lanes."""
    num_instances: int
    seconds: float
    """From the end of the stage before, the wait for new instances counted."""
    cost_dollars: float
    """What is charged in that time, and what the minimum charge adds for instances that were given back before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPlan:
    """How many instances of which type a search holds from stage to stage."""

    instance: Instance
    stages: tuple[PlannedStage, ...]

    @property
    def is_spot(self) -> bool:
        """Whether its instances are to be asked for at the spot price."""
        return self.instance.is_spot

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices of each stage."""
        return tuple(stage.num_devices for stage in self.stages)

    @property
    def instances(self) -> tuple[int, ...]:
        """The instances of each stage."""
        return tuple(stage.num_instances for stage in self.stages)

    @property
    def seconds(self) -> float:
        """What the whole takes."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def cost_dollars(self) -> float:
        """What the whole costs."""
        return sum(stage.cost_dollars for stage in self.stages)


def lay_out(job: Job, devices: Sequence[int], holding: Holding | None = None) -> ElasticPlan:
    """Return an allocation of devices as a plan, stage by stage; its sums are those that `predict` gives.

    It begins with what is held already, or with nothing.
    """
    holding = holding or Holding()
    stages: list[PlannedStage] = []
    for number, (stage, num_devices) in enumerate(zip(job.stages, devices, strict=True), start=1):
        after = holding.run_stage(job, stage, num_devices)
        end = after.release_all(job) if number == len(job.stages) else after
        stages.append(
            PlannedStage(
                num_trials=stage.num_trials,
                num_epochs=stage.num_epochs,
                num_devices=num_devices,
                num_instances=after.num_held,
                seconds=end.seconds - holding.seconds,
                cost_dollars=end.cost_dollars - holding.cost_dollars,
            )
        )
        holding = after
    return ElasticPlan(instance=job.instance, stages=tuple(stages))


def next_size(plan: ElasticPlan, stage: int) -> int:
    """Return how many instances a search should hold in its stage of this number, counted from 0; none after the last.

    Raises:
        PlanError: The number is below 0.
    """
    if stage < 0:
        raise PlanError(f"stage {stage} was asked for; stages are counted from 0")
    return plan.stages[stage].num_instances if stage < len(plan.stages) else 0
