"""What a study trains on where its workers are on other machines: they decide, and this one need not have it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.execute.lab import STUDY

import headwater as hw
from headwater.conduct.limits import read_limits
from headwater.errors import StudyError
from headwater.execute.choosing import find_workers_kind
from headwater.running import open_executor
from headwater.trials import Silence

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")


@pytest.mark.parametrize(
    ("executor", "device", "kind"),
    [
        (hw.SlurmExecutor(gres="gpu:1"), "auto", "cuda"),
        (hw.SlurmExecutor(gres="gpu:a100:2"), "cuda", "cuda"),
        (hw.SlurmExecutor(), "auto", "cpu"),
        (hw.RayExecutor(kind="cuda"), "cuda:1", "cuda"),
        ("slurm", "cuda", "cuda"),
        ("slurm", "auto", None),
        ("processes", "cuda", None),
        (hw.ProcessExecutor(2), "auto", None),
    ],
)
def test_the_workers_kind_decides_where_they_are_elsewhere(executor: object, device: str, kind: str | None) -> None:
    assert find_workers_kind(executor, device) == kind


def test_a_study_that_asks_for_another_kind_is_refused() -> None:
    with pytest.raises(StudyError, match="the workers of the SlurmExecutor train on cpu; leave device out"):
        find_workers_kind(hw.SlurmExecutor(), "cuda")


@without_gpu
def test_a_login_node_without_a_gpu_has_its_workers_train_on_theirs() -> None:
    study = replace(STUDY, executor=hw.SlurmExecutor(gres="gpu:1"))
    with open_executor(study, read_limits(1, None, None), Silence()) as (_, settings):
        assert (settings.device, settings.kind) == ("cuda", "cuda of other machines")
