"""One process runs a study at a time, and a record that vanishes under it is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import StoreError
from headwater.store import Runner, open_store

WAITING = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(2):
        if trial.config["lr"] > 5:
            input()
        trial.report(loss=1.0)

study = hw.Study(train, space={"lr": hw.grid([5, 6, 7])}, search="grid", metric="loss", lanes=1, executor="inline")
NUM_TRIALS = 1
"""
DEADLINE_S = 90


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_of_four_that_resume_a_study_at_once_one_does(empty_place: Path) -> None:
    (empty_place / "waiting.py").write_text(WAITING)
    CliRunner().invoke(app, ["run", "waiting.py"])
    processes = [start("resume", "waiting.py", "--trials", "3") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        ends = {pool.submit(process.wait, DEADLINE_S): process for process in processes}
        refused = [ends[next(done)] for done in [as_completed(ends)] for _ in range(3)]
        (chosen,) = set(processes) - set(refused)
        assert chosen.stdin is not None
        chosen.stdin.write("\n" * 100)
        chosen.stdin.flush()
    assert chosen.returncode == 0
    for process in refused:
        told = process.communicate()[1]
        assert process.returncode == 2
        assert f"study 'train-1' is still running, in process {chosen.pid} on " in told
        assert told.count("\n") == 1
    chosen.communicate()
    with open_store("headwater.db", create=False) as store:
        assert [trial.epochs for trial in store.trials(1)] == [2, 2, 2]


def delete(path: Path) -> None:
    path.unlink()


def put_another_in_its_place(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


@pytest.mark.parametrize("harm", [delete, put_another_in_its_place])
@pytest.mark.parametrize("at_epoch", [0, 2])
def test_a_record_that_vanishes_while_it_is_written_is_an_error(
    tmp_path: Path, harm: Callable[[Path], None], at_epoch: int
) -> None:
    path = tmp_path / "study.db"

    def train(trial: hw.Trial) -> None:
        for epoch in trial.epochs(3):
            if epoch == at_epoch:
                harm(path)
            trial.report(loss=1.0)

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, storage=path)
    with pytest.raises(StoreError, match=r"study\.db was deleted or replaced by another file while it was in use"):
        study.run(num_trials=1)


def test_a_run_that_was_taken_over_ends_with_an_error_and_writes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "study.db"

    def train(trial: hw.Trial) -> None:
        for epoch in trial.epochs(4):
            if epoch == 2:
                with open_store(path) as store:
                    seen = store.read_lease(1)
                    assert store.take_lease(1, Runner.here(), instead_of=seen) is not None
            trial.report(loss=1.0)

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, storage=path)
    with pytest.raises(StoreError, match="this run has lost its study to process"):
        study.run(num_trials=1)
    with open_store(path) as store:
        (record,) = store.trials(1)
        assert record.epochs == 2
        assert record.error is None
