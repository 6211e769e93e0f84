"""What a user sees of a study does not depend on where its groups train; what dies takes nothing with it."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import build_executor, read_workers
from headwater.relay import StudyAttendant
from headwater.report import Callback
from headwater.trials import Report, Result, Status

torch.manual_seed(0)
INPUTS = torch.randn(96, 6)
TARGETS = (INPUTS @ torch.randn(6, 3)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def train(trial: hw.Trial, data: Dataset[Any] = DATA) -> None:
    config = trial.config
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)))
    loader = trial.prepare_data_loader(data, batch_size=config.get("batch_size", 32), shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=config["lr"], momentum=0.9)
    for _ in trial.epochs(9):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        trial.report(loss=total)


SPACE = {"lr": hw.loguniform(1e-3, 0.5)}
STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=4, max_epochs=9)


def away(study: hw.Study, num_workers: int = 2) -> hw.Study:
    return replace(study, executor=hw.ProcessExecutor(num_workers))


def assert_same(first: Result, second: Result) -> None:
    for mine, other in zip(first.trials, second.trials, strict=True):
        assert (mine.number, mine.status, mine.epochs) == (other.number, other.status, other.epochs)
        values = [report.metrics["loss"] for report in mine.history]
        assert values == pytest.approx([report.metrics["loss"] for report in other.history], rel=1e-4, nan_ok=True)


def count_reports(result: Result) -> int:
    return sum(len(trial.history) for trial in result.trials)


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


class SlowData(Dataset[tuple[Tensor, Tensor]]):
    """Takes longer to load than to train on, so that packs pay."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for _ in range(40):
            INPUTS.sum()
        return INPUTS[index], TARGETS[index]


def test_packs_train_in_processes_too() -> None:
    def load_slowly(trial: hw.Trial) -> None:
        train(trial, SlowData())

    notes = Notes()
    study = replace(STUDY, train=load_slowly, space={**SPACE, "batch_size": hw.grid([8, 16, 32])}, lanes=1)
    result = replace(away(study), callbacks=[notes]).run(num_trials=6)
    assert_same(result, replace(study, packing=None).run(num_trials=6))
    order = [reports[0].number for reports in notes.reports]
    assert order != sorted(order)  # they took turns


def test_trials_that_raise_or_diverge_leave_the_others_alone() -> None:
    def fragile(trial: hw.Trial) -> None:
        if trial.config["kind"] == "bad":
            raise RuntimeError("this kind cannot be trained")
        for _ in trial.epochs(3):
            trial.report(loss=math.nan if trial.config["kind"] == "nan" else 1.0)

    study = replace(STUDY, train=fragile, space={**SPACE, "kind": hw.grid(["good", "bad", "nan"])})
    result = away(study).run(num_trials=9)
    expected = {"good": Status.COMPLETED, "bad": Status.FAILED, "nan": Status.STOPPED}
    assert [trial.status for trial in result.trials] == [expected[trial.config["kind"]] for trial in result.trials]
    assert all("cannot be trained" in str(trial.error) for trial in result.trials if trial.status is Status.FAILED)


def test_a_trial_that_kills_its_process_fails_alone() -> None:
    def deadly(trial: hw.Trial) -> None:
        for _ in trial.epochs(3):
            trial.report(loss=trial.config["lr"])
        if trial.config["kind"] == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)

    study = replace(STUDY, train=deadly, space={**SPACE, "kind": hw.grid(["good", "deadly"])})
    result = away(study).run(num_trials=8)
    failed = [trial for trial in result.trials if trial.status is Status.FAILED]
    assert [trial.config["kind"] for trial in failed] == ["deadly"] * 4
    assert sum(trial.status is Status.COMPLETED for trial in result.trials) == 4
    assert all("SIGKILL" in str(trial.error) and "memory" in str(trial.error) for trial in failed)


def test_of_a_pack_whose_process_dies_only_the_trial_to_blame_fails() -> None:
    def deadly(trial: hw.Trial) -> None:
        for x, _ in trial.prepare_data_loader(SlowData(), batch_size=trial.config["batch_size"]):
            x.sum()
        for epoch in trial.epochs(3):
            trial.report(loss=trial.config["lr"])
            if epoch == 1 and trial.config["batch_size"] == 16 and os.getpid() != here:
                os.kill(os.getpid(), signal.SIGKILL)

    here = os.getpid()
    study = replace(STUDY, train=deadly, space={**SPACE, "batch_size": hw.grid([8, 16, 32])}, lanes=1)
    result = away(study).run(num_trials=6)
    failed = [trial.config["batch_size"] for trial in result.trials if trial.status is Status.FAILED]
    assert failed == [16, 16]
    assert sum(trial.status is Status.COMPLETED for trial in result.trials) == 4


def test_a_process_that_dies_after_its_last_report_has_done_its_work() -> None:
    def hasty(trial: hw.Trial) -> None:
        try:
            train(trial)
        finally:
            if os.getpid() != here:
                os._exit(3)

    here = os.getpid()
    result = replace(away(STUDY), train=hasty, packing=None).run(num_trials=8)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 8


@pytest.mark.parametrize("when", ["waiting", "capturing"])
def test_a_process_that_dies_while_it_reports_is_a_result(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The first process dies, once; what it was to train trains in another."""
    original = StudyAttendant._capture if when == "capturing" else StudyAttendant._answer
    killed: list[int] = []

    def kill_before(self: StudyAttendant, *args: Any) -> Any:
        if not killed:
            (first,) = multiprocessing.active_children()
            killed.append(first.pid or 0)
            os.kill(killed[0], signal.SIGKILL)
            first.join()
        return original(self, *args)

    monkeypatch.setattr(StudyAttendant, original.__name__, kill_before)
    study = replace(STUDY, search="asha", packing=None)
    assert_same(away(study, 1).run(num_trials=12), study.run(num_trials=12))
    assert killed


def test_a_state_that_cannot_be_saved_fails_its_trial(tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "odd": object()}

    def odd(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(6, 3))
        trial.prepare_optimizer(Odd, model, lr=trial.config["lr"])
        for _ in trial.epochs(9):
            trial.report(loss=1.0)

    study = replace(STUDY, train=odd, search="asha", lanes=1, storage=tmp_path / "study.db")
    result = away(study).run(num_trials=3)
    assert [trial.status for trial in result.trials] == [Status.FAILED] * 3
    assert all("cannot be saved without pickling code" in str(trial.error) for trial in result.trials)


def test_what_a_process_has_started_does_not_hold_up_the_study() -> None:
    """The process dies, and what it forked lives on with its end of the line."""

    def leave_one_behind(trial: hw.Trial) -> None:
        if os.getpid() != here:
            if (pid := os.fork()) == 0:
                signal.pause()
                os._exit(0)
            left.send(pid)
            os.kill(os.getpid(), signal.SIGKILL)
        trial.report(loss=1.0)

    here = os.getpid()
    ours, left = multiprocessing.Pipe()
    result = replace(away(STUDY), train=leave_one_behind, lanes=1, packing=None).run(num_trials=2)
    for _ in range(2):
        os.kill(ours.recv(), signal.SIGKILL)
    assert [trial.status for trial in result.trials] == [Status.FAILED] * 2


class Sudden(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Sudden])
def test_what_is_no_ordinary_exception_ends_the_study_as_it_would_here(kind: type[BaseException]) -> None:
    def sudden(trial: hw.Trial) -> None:
        raise kind("now")

    with pytest.raises(kind, match="now"):
        replace(away(STUDY), train=sudden, packing=None).run(num_trials=2)


def test_processes_end_with_the_study(tmp_path: Path) -> None:
    """SIGKILL leaves the study no time to end them; they notice at their next report, whoever is younger."""
    script = f"""
import os, headwater as hw
def train(trial):
    slow = trial.config["number"] == 2
    for _ in trial.epochs(10**9):
        with open({str(tmp_path / "pids")!r}, "a") as file:
            file.write(f"{{os.getpid()}} {{int(slow)}}\\n")
        if slow:
            open({str(tmp_path / "fifo")!r}).read()
        trial.report(loss=1.0)
study = hw.Study(train, space={{"number": hw.grid([0, 1, 2])}}, metric="loss", storage=None, lanes=1, packing=None,
                 executor=hw.ProcessExecutor(3))
study.run()
"""
    os.mkfifo(tmp_path / "fifo")
    study = subprocess.Popen([sys.executable, "-c", script])
    pids: dict[int, int] = {}
    deadline = time.monotonic() + DEADLINE_S
    while sorted(pids.values()) != [0, 0, 1]:
        assert time.monotonic() < deadline
        lines = (tmp_path / "pids").read_text().splitlines() if (tmp_path / "pids").exists() else []
        pids = {int(pid): int(slow) for pid, slow in (line.split() for line in lines if line.count(" ") == 1)}
    study.kill()
    study.wait()
    for pid in (pid for pid, slow in pids.items() if not slow):
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
    (slow,) = (pid for pid, slow in pids.items() if slow)
    assert Path(f"/proc/{slow}").exists()
    os.kill(slow, signal.SIGKILL)


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
