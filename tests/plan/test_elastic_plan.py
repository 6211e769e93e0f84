"""Plans as they are carried out."""

from __future__ import annotations

from random import Random

import pytest
from tests.plan.jobs import HALVING, draw_job

from headwater.errors import PlanError
from headwater.plan.elastic import predict
from headwater.plan.elastic_plan import lay_out, next_size


def test_stages_add_up_to_what_is_predicted() -> None:
    rng = Random(2)
    for _ in range(50):
        job = draw_job(rng)
        devices = [rng.choice(job.list_allocations(stage)) for stage in job.stages]
        plan, whole = lay_out(job, devices), predict(job, devices)
        assert plan.seconds == pytest.approx(whole.seconds)
        assert plan.cost_dollars == pytest.approx(whole.cost_dollars)
        assert (plan.devices, plan.instances) == (whole.devices, whole.instances)


def test_the_cluster_has_the_size_of_the_stage_and_is_gone_after_the_last() -> None:
    plan = lay_out(HALVING, (32, 20, 12, 4))
    assert [next_size(plan, stage) for stage in range(6)] == [8, 5, 3, 1, 0, 0]
    with pytest.raises(PlanError, match="counted from 0"):
        next_size(plan, -1)
