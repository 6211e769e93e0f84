"""What a user sees of a study does not depend on the processes in which its groups train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.execute.lab import (
    SPACE,
    STUDY,
    Notes,
    SlowData,
    StayingExecutor,
    StopAt,
    assert_same,
    away,
    list_children,
    train,
)
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import build_executor
from headwater.report import Callback
from headwater.search import ASHA
from headwater.store import open_store
from headwater.trials import Arrival, Report, Status


def test_three_processes_come_to_the_same_and_end_with_the_study() -> None:
    before = list_children()
    study = replace(STUDY, search="asha")
    assert_same(away(study, hw.ProcessExecutor(3)).run(num_trials=12), study.run(num_trials=12))
    assert list_children() <= before


class CountChildren(Callback):
    """Counts the processes there are at every report."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.counts.append(len(list_children()))


def test_what_follows_a_measurement_is_for_the_process_that_made_it() -> None:
    before, children = len(list_children()), CountChildren()
    replace(away(STUDY, hw.ProcessExecutor(2)), lanes="auto", callbacks=[children]).run(num_trials=1)
    assert set(children.counts) == {before + 1}


def test_lanes_are_shared_out_evenly(workers: StayingExecutor) -> None:
    notes = Notes()
    replace(away(STUDY, workers), lanes=8, callbacks=[notes]).run(num_trials=12)
    assert {len(reports) for reports in notes.reports} == {6}


def test_trials_part_by_what_the_code_asks_of_them(workers: StayingExecutor) -> None:
    study = replace(STUDY, space={**SPACE, "batch_size": hw.grid([16, 32])})
    assert_same(away(study, workers).run(num_trials=8), study.run(num_trials=8))


def test_configurations_need_not_be_sendable(workers: StayingExecutor) -> None:
    study = replace(STUDY, space={**SPACE, "act": hw.choice([lambda x: x, lambda x: -x])})
    assert_same(away(study, workers).run(num_trials=6), study.run(num_trials=6))


def test_packs_train_in_processes_too(workers: StayingExecutor) -> None:
    def load_slowly(trial: hw.Trial) -> None:
        train(trial, SlowData())

    notes = Notes()
    study = replace(STUDY, train=load_slowly, space={**SPACE, "batch_size": hw.grid([8, 16, 32])}, lanes=1)
    result = replace(away(study, workers), packing="cost", callbacks=[notes]).run(num_trials=6)
    assert_same(result, study.run(num_trials=6))
    order = [reports[0].number for reports in notes.reports]
    assert order != sorted(order)  # they took turns


def test_what_was_decided_as_results_came_is_decided_again(workers: StayingExecutor, tmp_path: Path) -> None:
    def read_arrivals() -> list[Arrival]:
        with open_store(tmp_path / "study.db", create=False) as store:
            return store.arrivals(store.study().id)

    search = ASHA(concurrency=3, reduction=2)
    study = replace(away(STUDY, workers), search=search, order="arrival", lanes=1, storage=tmp_path / "study.db")
    cut = replace(study, callbacks=[StopAt(12)]).run(num_trials=12)
    assert cut.was_interrupted
    seen = read_arrivals()
    result = study.resume()
    assert seen
    assert read_arrivals()[: len(seen)] == seen
    epochs = {trial.number: trial.epochs for trial in result.trials}
    assert all(epochs[trial.number] >= trial.epochs for trial in cut.trials)
    assert len(epochs) == 12
    assert_no_overlap(tmp_path / "study.db")
    assert all(trial.status is not Status.RUNNING for trial in result.trials)


def test_a_target_ends_the_study_early(workers: StayingExecutor) -> None:
    everything = STUDY.run(num_trials=12)
    cut = replace(away(STUDY, workers), lanes=1).run(num_trials=12, target=everything.best.value("loss"))
    assert cut.ended_early is not None
    assert "reached the target" in cut.ended_early


def test_the_best_model_comes_back_from_its_process(workers: StayingExecutor, tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    there = replace(away(study, workers), name="there").run(num_trials=8)
    here = replace(study, name="here").run(num_trials=8)
    for mine, other in zip(there.load_best_model().parameters(), here.load_best_model().parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def test_processes_train_with_one_thread_and_the_rest_of_the_program_with_its_own(workers: StayingExecutor) -> None:
    def count(trial: hw.Trial) -> None:
        trial.report(loss=float(torch.get_num_threads()))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        result = replace(away(STUDY, workers), train=count).run(num_trials=4)
        assert {trial.value("loss") for trial in result.trials} == {1.0}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_is_gained_is_told_by_the_time_that_passed(workers: StayingExecutor) -> None:
    result = replace(away(STUDY, workers), lanes="auto").run(num_trials=8)
    assert result.seconds_busy is None
    assert result.seconds_one_by_one is not None


def test_an_error_in_a_callback_ends_the_study(workers: StayingExecutor) -> None:
    class Fault(Callback):
        def on_reports(self, reports: Sequence[Report]) -> None:
            raise LookupError("no such dashboard")

    with pytest.raises(LookupError, match="dashboard"):
        replace(away(STUDY, workers), callbacks=[Fault()]).run(num_trials=8)


def test_names_and_numbers_of_devices_are_checked() -> None:
    with pytest.raises(StudyError, match="'inline', 'processes'"):
        replace(STUDY, executor="cloud")
    with pytest.raises(StudyError, match="at least 1"):
        hw.ProcessExecutor(0)
    with pytest.raises(StudyError, match="torch sees 0 of type 'cuda'"):
        build_executor("processes", "cuda", 1)
    assert len(build_executor("processes", "cpu", 3).list_devices()) == 3
