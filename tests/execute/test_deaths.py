"""A trial or a process that dies takes nothing with it, and no process outlives its study."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.execute.lab import SPACE, STUDY, SlowData, assert_same, away, train
from torch import nn

import headwater as hw
from headwater.relay import StudyAttendant
from headwater.trials import Status

DEADLINE_S = 60


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
