"""A trial or a process that dies takes nothing with it, and no process outlives its study."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from asyncio import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.execute.calling import python_environment
from tests.execute.lab import NUM_EPOCHS, SPACE, STUDY, SlowData, StayingExecutor, assert_same, away, train
from torch import nn

import headwater as hw
from headwater.conduct.endings import MOST_LOSSES
from headwater.errors import AllTrialsFailedError
from headwater.train.state_store import StateStore
from headwater.trials import Status

DEADLINE_S = 100


def test_trials_that_raise_or_diverge_leave_the_others_alone(workers: StayingExecutor) -> None:
    def fragile(trial: hw.Trial) -> None:
        if trial.config["kind"] == "bad":
            raise RuntimeError("this kind cannot be trained")
        for _ in trial.epochs(3):
            trial.report(loss=math.nan if trial.config["kind"] == "nan" else 1.0)

    study = replace(STUDY, train=fragile, space={**SPACE, "kind": hw.grid(["good", "bad", "nan"])})
    result = away(study, workers).run(num_trials=9)
    expected = {"good": Status.COMPLETED, "bad": Status.FAILED, "nan": Status.STOPPED}
    assert [trial.status for trial in result.trials] == [expected[trial.config["kind"]] for trial in result.trials]
    assert all("cannot be trained" in str(trial.error) for trial in result.trials if trial.status is Status.FAILED)


def test_a_trial_that_kills_its_process_again_and_again_fails_alone(workers: StayingExecutor, tmp_path: Path) -> None:
    log = tmp_path / "deaths"

    def deadly(trial: hw.Trial) -> None:
        for _ in trial.epochs(3):
            trial.report(loss=trial.config["lr"])
        if trial.config["kind"] == "deadly":
            with log.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

    study = replace(STUDY, train=deadly, space={"kind": hw.grid(["good", "deadly", "fine"]), **SPACE}, lanes=1)
    result = away(study, workers).run(num_trials=3)
    statuses = {trial.config["kind"]: trial.status for trial in result.trials}
    assert statuses == {"good": Status.COMPLETED, "deadly": Status.FAILED, "fine": Status.COMPLETED}
    (failed,) = (trial for trial in result.trials if trial.status is Status.FAILED)
    assert "SIGKILL" in str(failed.error)
    assert "memory" in str(failed.error)
    assert len(log.read_text()) == MOST_LOSSES


@pytest.mark.parametrize("lanes", [1, 4])
def test_what_was_lost_once_goes_on_from_its_last_state(workers: StayingExecutor, tmp_path: Path, lanes: int) -> None:
    """Where lanes died together, they go on in halves: who is to blame cannot be told."""
    flag, log = tmp_path / "died", tmp_path / "log"

    def die_once(trial: hw.Trial) -> None:
        report = trial.report
        epochs: list[int] = []

        def report_or_die(**metrics: Any) -> None:
            epochs.append(len(epochs))
            if len(epochs) == 3 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with log.open("a") as file:
                file.write("x")
            report(**metrics)

        trial.report = report_or_die  # type: ignore[method-assign]  # stands for code that takes too much memory
        train(trial)

    study = replace(STUDY, train=die_once, lanes=lanes, save_every=1, storage=tmp_path / "s.db")
    result = replace(away(study, workers), name="away").run(num_trials=2)
    assert flag.exists()
    assert_same(result, replace(STUDY, lanes=1).run(num_trials=2))
    if lanes == 1:  # not an epoch was reported twice
        assert len(log.read_text()) == 2 * NUM_EPOCHS


def test_of_a_pack_whose_process_dies_only_the_trial_to_blame_fails(workers: StayingExecutor) -> None:
    def deadly(trial: hw.Trial) -> None:
        for x, _ in trial.prepare_data_loader(SlowData(), batch_size=trial.config["batch_size"]):
            x.sum()
        for epoch in trial.epochs(3):
            trial.report(loss=trial.config["lr"])
            if epoch == 1 and trial.config["batch_size"] == 16:
                os.kill(os.getpid(), signal.SIGKILL)

    space = {**SPACE, "batch_size": hw.grid([8, 16, 32])}
    study = replace(STUDY, train=deadly, space=space, lanes=1, packing="batch_size")
    result = away(study, workers).run(num_trials=3)
    failed = [trial.config["batch_size"] for trial in result.trials if trial.status is Status.FAILED]
    assert failed == [16]
    assert sum(trial.status is Status.COMPLETED for trial in result.trials) == 2


def test_a_process_that_dies_after_its_last_report_has_done_its_work(workers: StayingExecutor) -> None:
    def hasty(trial: hw.Trial) -> None:
        try:
            train(trial)
        finally:
            os._exit(3)

    result = replace(away(STUDY, workers), train=hasty).run(num_trials=4)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 4


def test_a_process_that_dies_while_it_saves_takes_nothing_with_it(workers: StayingExecutor, tmp_path: Path) -> None:
    flag = tmp_path / "died"

    def die_in_saving(trial: hw.Trial) -> None:
        put = StateStore.put

        def put_or_die(self: StateStore, *args: Any) -> None:
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            put(self, *args)

        StateStore.put = put_or_die  # type: ignore[assignment,method-assign]  # in the worker's process alone
        try:
            train(trial)
        finally:
            StateStore.put = put  # type: ignore[method-assign]

    study = replace(STUDY, search="asha", lanes=2)
    result = away(replace(study, train=die_in_saving), workers).run(num_trials=6)
    assert flag.exists()
    assert_same(result, study.run(num_trials=6))


def test_a_state_that_cannot_be_saved_fails_its_trial(workers: StayingExecutor, tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "odd": object()}

    def odd(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(6, 3))
        trial.prepare_optimizer(Odd, model, lr=trial.config["lr"])
        for _ in trial.epochs(9):
            trial.report(loss=1.0)

    study = replace(STUDY, train=odd, search="asha", lanes=1, storage=tmp_path / "study.db")
    with pytest.raises(AllTrialsFailedError) as told:
        away(study, workers).run(num_trials=3)
    failed = told.value.result.trials
    assert [trial.status for trial in failed] == [Status.FAILED] * 3
    assert all("cannot be saved without pickling code" in str(trial.error) for trial in failed)


def test_what_a_process_has_started_does_not_hold_up_the_study(workers: StayingExecutor, tmp_path: Path) -> None:
    """The process dies, and what it forked lives on with its end of the line."""
    log = tmp_path / "left"

    def leave_one_behind(trial: hw.Trial) -> None:
        if (pid := os.fork()) == 0:
            signal.pause()
            os._exit(0)
        with log.open("a") as file:
            file.write(f"{pid}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AllTrialsFailedError, match="SIGKILL"):
        replace(away(STUDY, workers), train=leave_one_behind, lanes=1).run(num_trials=1)
    for pid in log.read_text().split():
        os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, CancelledError])
def test_what_is_no_ordinary_exception_ends_the_study_as_it_would_here(
    workers: StayingExecutor, kind: type[BaseException]
) -> None:
    def sudden(trial: hw.Trial) -> None:
        raise kind("now")

    with pytest.raises(kind, match="now"):
        replace(away(STUDY, workers), train=sudden).run(num_trials=2)


def test_processes_end_with_the_study(tmp_path: Path) -> None:
    """SIGKILL leaves the study no time to end them; they notice, even where one computes without an end."""
    script = f"""
import os, headwater as hw
def train(trial):
    for _ in trial.epochs(10**9):
        with open({str(tmp_path / "pids")!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        while trial.config["is_slow"]:
            open({str(tmp_path / "fifo")!r}).read()
        trial.report(loss=1.0)
study = hw.Study(train, space={{"is_slow": hw.grid([False, True])}}, metric="loss", storage=None, lanes=1, packing=None,
                 executor=hw.ProcessExecutor(2))
study.run()
"""
    os.mkfifo(tmp_path / "fifo")
    study = subprocess.Popen([sys.executable, "-c", script], env=python_environment())
    pids: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(pids) < 2:
        assert time.monotonic() < deadline
        text = (tmp_path / "pids").read_text() if (tmp_path / "pids").exists() else ""
        pids = set(text.rpartition("\n")[0].split())
    study.kill()
    study.wait()
    for pid in pids:
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
