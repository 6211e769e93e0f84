"""Studies in the bubbles of a pipeline: the same answers, on devices that come and go with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.execute.lab import NUM_EPOCHS, SPACE, STUDY, assert_same, away, list_children

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import lent_stages
from headwater.report import Callback
from headwater.stalls import LentStage, StallPage
from headwater.store import open_store
from headwater.trials import Report

pytestmark = pytest.mark.timeout(600)  # what trains in bubbles gives way to all else on a busy machine


def lend(folder: Path, stage: int = 0, memory_bytes: int | None = None) -> StallPage:
    """Lend a stage of a pipeline that this process stands for; it waits all the time."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    page = StallPage(folder, LentStage(stage=stage, num_stages=2, pid=os.getpid(), cores=cores))
    page.open(memory_bytes)
    page.begin_stall()
    return page


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Path]:
    pages = [lend(tmp_path / "bubbles", stage) for stage in range(2)]
    yield tmp_path / "bubbles"
    for page in pages:
        page.close()


def test_a_study_in_bubbles_comes_to_the_same(lent: Path) -> None:
    before = list_children()
    executor = hw.ProcessExecutor(0, bubbles=lent)
    devices = executor.list_devices()
    assert [device.name for device in devices] == ["bubble:0", "bubble:1"]
    assert all(device.is_ephemeral for device in devices)
    study = replace(STUDY, search="asha")
    assert_same(away(study, executor).run(num_trials=8), study.run(num_trials=8))
    assert list_children() <= before


def test_what_trains_in_bubbles_steps_back(lent: Path) -> None:
    def look(trial: hw.Trial) -> None:
        trial.report(loss=float(os.sched_getscheduler(0)))

    result = replace(away(STUDY, hw.ProcessExecutor(0, bubbles=lent)), train=look).run(num_trials=2)
    assert {trial.value("loss") for trial in result.trials} == {float(os.SCHED_IDLE)}


class EndLending(Callback):
    """Ends the pipeline after some reports."""

    def __init__(self, page: StallPage) -> None:
        self.page = page
        self.num_reports = 0

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.num_reports += 1
        if self.num_reports == 2:
            self.page.close()


def test_when_the_pipeline_ends_trials_leave_and_the_study_can_go_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent_stages, "LOOK_EVERY_S", 0.0)
    page = lend(tmp_path / "bubbles")
    study = replace(STUDY, storage=tmp_path / "study.db", name="lent", max_epochs=NUM_EPOCHS)
    executor = hw.ProcessExecutor(0, bubbles=tmp_path / "bubbles")
    with pytest.raises(StudyError, match=r"no pipeline lends its bubbles in .* resume the study"):
        replace(away(study, executor), callbacks=[EndLending(page)]).run(num_trials=8)
    assert_same(study.resume(), replace(STUDY).run(num_trials=8))


def test_bubbles_that_come_later_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_stages, "LOOK_EVERY_S", 0.0)
    pages: list[StallPage] = []

    class BeginLending(Callback):
        def on_reports(self, reports: Sequence[Report]) -> None:
            if not pages:
                pages.append(lend(tmp_path / "bubbles"))

    executor = hw.ProcessExecutor(1, bubbles=tmp_path / "bubbles")
    assert [device.name for device in executor.list_devices()] == ["cpu:0"]
    study = replace(STUDY, lanes=1, storage=tmp_path / "study.db", name="later")
    result = replace(away(study, executor), callbacks=[BeginLending()]).run(num_trials=40)
    assert len(result.trials) == 40
    with open_store(tmp_path / "study.db") as store:
        places = {span.device for span in store.spans(store.study("later"))}
    pages[0].close()
    assert places == {"cpu:0", "bubble:0"}


def test_a_study_without_any_device_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no pipeline lends .* start the training with hw\.lend_bubbles"):
        away(STUDY, hw.ProcessExecutor(0, bubbles=tmp_path / "bubbles")).run(num_trials=2)
    with pytest.raises(StudyError, match="at least 1"):
        hw.ProcessExecutor(0)
    with pytest.raises(StudyError, match="at least 0"):
        hw.ProcessExecutor(-1, bubbles=tmp_path)
    with pytest.raises(StudyError, match="bubbles is 3"):
        hw.ProcessExecutor(0, bubbles=3)  # type: ignore[arg-type]  # that is the point


def test_a_stage_of_another_kind_of_device_is_refused(tmp_path: Path) -> None:
    page = StallPage(tmp_path, LentStage(stage=0, num_stages=2, pid=os.getpid(), device="cuda:1"))
    page.open(None)
    with pytest.raises(StudyError, match=r"stage 0 .* is on cuda:1, but the study trains on cpu"):
        hw.ProcessExecutor(0, bubbles=tmp_path).list_devices()
    page.close()


def test_a_trial_that_needs_more_than_is_left_is_refused(tmp_path: Path) -> None:
    page = lend(tmp_path / "bubbles", memory_bytes=0)
    study = replace(STUDY, lanes="auto", train=hold_much, space=SPACE)
    with pytest.raises(StudyError, match=r"a trial needs 0\.\d+ GiB, but the bubbles leave 0\.00 GiB"):
        away(study, hw.ProcessExecutor(0, bubbles=tmp_path / "bubbles")).run(num_trials=4)
    page.close()


def hold_much(trial: hw.Trial) -> None:
    import torch
    from torch import nn

    model = trial.prepare_model(nn.Linear(64, 64))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(3):
        for _ in range(4):
            held = torch.ones(1 << 24)
            loss = model(torch.ones(4, 64)).square().mean() * held.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)
