"""Brackets and surrogates that are trained by a plan on real raylets end with the table of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.execute.lab import STUDY, assert_same
from tests.execute.test_conformance import train_wide

import headwater as hw
from headwater.cli.study_stages import follow_plan, list_job_stages
from headwater.cloud.local_cluster import LocalCluster, list_local_nodes
from headwater.plan.elastic import plan_fastest
from headwater.plan.elastic_plan import ElasticPlan
from headwater.plan.jobs import EpochSeconds, Instance, Job
from headwater.trials import Result

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(500)

NUM_TRIALS = 17
"""As many as have three brackets."""
HYPERBAND = replace(STUDY, search="hyperband", lanes=1)
SURROGATE = replace(
    STUDY,
    search="halving",
    lanes=1,
    train=train_wide,
    compile=False,
    surrogate=hw.Surrogate(scale=4, min_width=4, num_checked=3),
)


def test_hyperband_is_trained_bracket_by_bracket(tmp_path: Path) -> None:
    result, plan = run_by_plan(HYPERBAND, tmp_path)
    assert [stage.num_trials for stage in plan.stages] == [9, 3, 1, 5, 1, 3], "three brackets"
    assert plan.instances == (2, 1, 1, 2, 1, 2), "a node goes and another comes"
    assert_same(result, HYPERBAND.run(num_trials=NUM_TRIALS), tolerance=0.0)


def test_a_surrogate_is_searched_checked_and_its_target_trained(tmp_path: Path) -> None:
    result, plan = run_by_plan(SURROGATE, tmp_path)
    assert [stage.num_trials for stage in plan.stages] == [17, 5, 1, 3, 1], "a search, a check and the target"
    assert plan.instances == (2, 2, 1, 2, 1), "a node goes and another comes"
    expected = SURROGATE.run(num_trials=NUM_TRIALS)
    assert_same(result, expected, tolerance=0.0)
    assert result.target is not None
    assert expected.target is not None
    assert result.target.config == expected.target.config
    assert result.target.history == expected.target.history


def run_by_plan(study: hw.Study, folder: Path) -> tuple[Result, ElasticPlan]:
    """Run a study as `headwater run --cluster local` does, on up to two nodes."""
    stages = list_job_stages(study, NUM_TRIALS)
    assert stages is not None
    job = Job(
        stages=stages,
        epoch_seconds=EpochSeconds(by_devices={1: 60.0}),
        by_scale={scale: EpochSeconds(by_devices={1: 60.0}) for scale in (2, 4)},
        instance=Instance(name="local", num_devices=1, dollars_per_hour=36.0, initialise_s=10.0, minimum_s=0.0),
        max_instances=2,
    )
    executor = hw.ElasticExecutor(LocalCluster(), job, deadline_s=1.05 * plan_fastest(job).seconds)
    name = f"by-plan-{folder.name}"
    planned = replace(follow_plan(study), executor=executor, storage=folder / "study.db", name=name)
    result = planned.run(num_trials=NUM_TRIALS)
    assert list_local_nodes(name) == []
    assert result.spending is not None
    assert executor.plan is not None
    assert [stage.planned_nodes for stage in result.spending.stages] == list(executor.plan.instances)
    assert all(stage.seconds is not None for stage in result.spending.stages)
    return result, executor.plan
