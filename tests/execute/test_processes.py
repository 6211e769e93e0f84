"""What a user sees of a study does not depend on where its groups train."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.execute.lab import INPUTS, SPACE, STUDY, TARGETS, SlowData, assert_same, away, count_reports, train
from torch import nn

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import build_executor, read_workers
from headwater.report import Callback
from headwater.trials import Report


@pytest.mark.parametrize("search", ["random", "asha", "hyperband", "halving", "pbt"])
def test_a_study_comes_to_the_same_in_processes(search: str) -> None:
    study = replace(STUDY, search=search)
    assert_same(away(study).run(num_trials=12), study.run(num_trials=12))


@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_number_of_processes_does_not_change_the_answer(num_workers: int) -> None:
    study = replace(STUDY, search="asha")
    assert_same(away(study, num_workers).run(num_trials=12), study.run(num_trials=12))


def test_lanes_are_shared_out_evenly() -> None:
    notes = Notes()
    replace(away(STUDY), lanes=8, callbacks=[notes]).run(num_trials=12)
    assert {len(reports) for reports in notes.reports} == {6}


def test_trials_part_by_what_the_code_asks_of_them() -> None:
    study = replace(STUDY, space={**SPACE, "batch_size": hw.grid([16, 32])}, packing=None)
    assert_same(away(study).run(num_trials=8), study.run(num_trials=8))


def test_configurations_need_not_be_sendable() -> None:
    study = replace(STUDY, space={**SPACE, "act": hw.choice([lambda x: x, lambda x: -x])})
    assert_same(away(study).run(num_trials=6), study.run(num_trials=6))


def test_packs_train_in_processes_too() -> None:
    def load_slowly(trial: hw.Trial) -> None:
        train(trial, SlowData())

    notes = Notes()
    study = replace(STUDY, train=load_slowly, space={**SPACE, "batch_size": hw.grid([8, 16, 32])}, lanes=1)
    result = replace(away(study), callbacks=[notes]).run(num_trials=6)
    assert_same(result, replace(study, packing=None).run(num_trials=6))
    order = [reports[0].number for reports in notes.reports]
    assert order != sorted(order)  # they took turns


def test_what_is_wrong_with_the_study_ends_it() -> None:
    with pytest.raises(StudyError, match="'loss'"):
        replace(away(STUDY), metric="accuracy").run(num_trials=8)


def test_an_error_in_a_callback_ends_the_study() -> None:
    class Fault(Callback):
        def on_reports(self, reports: Sequence[Report]) -> None:
            raise LookupError("no such dashboard")

    with pytest.raises(LookupError, match="dashboard"):
        replace(away(STUDY), callbacks=[Fault()]).run(num_trials=8)


class Notes(Callback):
    def __init__(self) -> None:
        self.reports: list[Sequence[Report]] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.reports.append(reports)


class StopAt(Callback):
    """Asks to stop as Ctrl-C does, after so many reports."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("search", ["random", "asha"])
@pytest.mark.parametrize("num_reports", [1, 2, 5])
def test_an_interrupted_study_goes_on_and_ends_like_another(tmp_path: Path, search: str, num_reports: int) -> None:
    study = replace(away(STUDY), search=search, storage=tmp_path / "study.db")
    cut = replace(study, callbacks=[StopAt(num_reports)]).run(num_trials=12)
    whole = replace(STUDY, search=search).run(num_trials=12)
    assert cut.was_interrupted
    assert count_reports(cut) < count_reports(whole)
    assert_same(study.resume(), whole)


def test_a_target_ends_the_study_early() -> None:
    everything = STUDY.run(num_trials=12)
    cut = replace(away(STUDY), lanes=1).run(num_trials=12, target=everything.best.value("loss"))
    assert cut.ended_early is not None
    assert "reached the target" in cut.ended_early


def test_the_best_model_comes_back_from_its_process(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    there = replace(away(study), name="there").run(num_trials=8)
    here = replace(study, name="here").run(num_trials=8)
    for mine, other in zip(there.load_best_model().parameters(), here.load_best_model().parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_a_study_with_a_surrogate_trains_in_processes(tmp_path: Path) -> None:
    def wide(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 3)))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(INPUTS), TARGETS)
            loss.backward()
            optimizer.step()
            trial.report(loss=loss)

    study = hw.Study(wide, space=SPACE, metric="loss", surrogate=4, lanes=4)
    here = replace(study, storage=tmp_path / "here.db").run(num_trials=12)
    there = replace(away(study), storage=tmp_path / "there.db").run(num_trials=12)
    assert there.best.config == here.best.config
    assert there.best.value("loss") == pytest.approx(here.best.value("loss"), rel=1e-4)


def test_processes_train_with_one_thread_and_the_rest_of_the_program_with_its_own() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:

        def count(trial: hw.Trial) -> None:
            trial.report(loss=float(torch.get_num_threads()))

        assert {trial.value("loss") for trial in replace(away(STUDY), train=count).run(num_trials=4).trials} == {1.0}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_is_gained_is_told_by_the_time_that_passed() -> None:
    result = replace(away(STUDY), lanes="auto").run(num_trials=8)
    assert result.seconds_busy is None
    assert result.seconds_one_by_one is not None


def test_names_and_numbers_of_workers_are_checked() -> None:
    with pytest.raises(StudyError, match="'inline', 'processes'"):
        replace(STUDY, executor="cloud")
    with pytest.raises(StudyError, match="at least 1"):
        hw.ProcessExecutor(0)
    with pytest.raises(StudyError, match="'auto' or a number"):
        read_workers("many")
    with pytest.raises(StudyError, match="on the CPU"):
        build_executor("processes", "cuda")
    assert read_workers("auto") == "processes"
    assert read_workers("1") == "inline"
    assert isinstance(read_workers("3"), hw.ProcessExecutor)
