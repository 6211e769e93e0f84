"""Faults of the machine are not results of trials: they end the run with their cause, and resume goes on.

Everything here really happens: writes past a limit of the system, locks of a second connection, killed processes.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.execute.lab import INPUTS, SPACE, TARGETS, assert_same
from tests.execute.lab import train as train_small
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import headwater as hw
from headwater.errors import StoreError
from headwater.report import Callback, Silence
from headwater.store import engine, open_store
from headwater.trials import Pulse, Report, Result, Status

STUDY = hw.Study(
    train_small, space=SPACE, metric="loss", storage=None, search="asha", max_epochs=9, lanes=3, executor="inline"
)
NUM_TRIALS = 9
EXECUTORS = ["inline", "processes"]


class At(Callback):
    """Does something in the study's process when there were so many reports."""

    def __init__(self, num_reports: int, act: Callable[[], None]) -> None:
        self._num_left = num_reports
        self._act = act

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._act()


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return STUDY.run(num_trials=NUM_TRIALS)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hw.Study:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 0.2)
    return replace(STUDY, storage=tmp_path / "study.db", save_every=1, packing=None)


class FullDisk:
    """No file of the study's process grows any more, until it is over."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def begin(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (1, self._before[1]))

    def end(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


class Lock:
    """Another process holds the database, until it is over."""

    def __init__(self, path: Path) -> None:
        script = "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1], isolation_level=None); input();"
        script += "connection.execute('BEGIN IMMEDIATE'); print(flush=True); input()"
        command = [sys.executable, "-c", script, str(path)]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        self._holder.stdout.readline()

    def end(self) -> None:
        os.kill(self._holder.pid, signal.SIGKILL)
        if self._holder.stdin is not None:
            self._holder.communicate()


def train_until(fault: FullDisk | Lock) -> Callable[[hw.Trial], None]:
    """Return a function that would be recorded to have failed: when it hears of the fault, that is over."""

    def train(trial: hw.Trial) -> None:
        try:
            train_small(trial)
        except Exception:
            fault.end()
            raise

    return train


def require_none_failed(path: Path) -> None:
    with open_store(path, create=False) as store:
        assert all(trial.status is not Status.FAILED for trial in store.trials(store.study().id))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("num_reports", [1, 4])
def test_a_full_disk_ends_the_run_and_it_goes_on(
    study: hw.Study, tmp_path: Path, undisturbed: Result, executor: str, num_reports: int
) -> None:
    fault = FullDisk()
    study = replace(study, executor=executor, train=train_small if executor == "processes" else train_until(fault))
    with pytest.raises(StoreError, match="check the disk"):
        replace(study, callbacks=[At(num_reports, fault.begin)]).run(num_trials=NUM_TRIALS)
    fault.end()
    require_none_failed(tmp_path / "study.db")
    assert_same(resume_after_death(study), undisturbed)


def test_states_that_cannot_be_written_end_the_run(study: hw.Study, tmp_path: Path, undisturbed: Result) -> None:
    def put_a_file_in_the_way() -> None:
        (states,) = (tmp_path / "study.db.states").iterdir()
        states.rename(tmp_path / "aside")
        states.touch()

    with pytest.raises(StoreError, match="Not a directory; check that place"):
        replace(study, callbacks=[At(3, put_a_file_in_the_way)]).run(num_trials=NUM_TRIALS)
    require_none_failed(tmp_path / "study.db")
    (states,) = (tmp_path / "study.db.states").iterdir()
    states.unlink()
    (tmp_path / "aside").rename(states)
    assert_same(study.resume(), undisturbed)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_lock_that_lasts_ends_the_run_and_it_goes_on(
    study: hw.Study, tmp_path: Path, undisturbed: Result, executor: str
) -> None:
    fault = Lock(tmp_path / "study.db")
    study = replace(study, executor=executor, train=train_small if executor == "processes" else train_until(fault))
    with pytest.raises(StoreError, match="has been locked by another process"):
        replace(study, callbacks=[At(4, fault.begin)]).run(num_trials=NUM_TRIALS)
    fault.end()
    require_none_failed(tmp_path / "study.db")
    assert_same(resume_after_death(study), undisturbed)


class UnpluggedError(Exception):
    """What a user's own code raises."""


def unplug() -> None:
    raise UnpluggedError("nobody there")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_callback_that_raises_ends_the_run_and_it_goes_on(
    study: hw.Study, tmp_path: Path, undisturbed: Result, executor: str
) -> None:
    study = replace(study, executor=executor)
    with pytest.raises(UnpluggedError, match="nobody there"):
        replace(study, callbacks=[At(3, unplug)]).run(num_trials=NUM_TRIALS)
    require_none_failed(tmp_path / "study.db")
    assert_same(study.resume(), undisturbed)


def test_a_watcher_that_raises_ends_the_run_and_it_goes_on(
    study: hw.Study, tmp_path: Path, undisturbed: Result
) -> None:
    class Broken(Silence):
        def pulse(self, pulse: Pulse) -> None:
            if pulse.num_lane_steps > 20:
                unplug()

    with pytest.raises(UnpluggedError):
        study.run(num_trials=NUM_TRIALS, watcher=Broken())
    require_none_failed(tmp_path / "study.db")
    assert_same(study.resume(), undisturbed)


def swallow_exceptions(trial: hw.Trial) -> None:
    for _ in trial.epochs(3):
        try:
            trial.report(loss=1.0)
        except Exception:
            trial.report(loss=2.0)


def swallow_everything(trial: hw.Trial) -> None:
    for _ in trial.epochs(3):
        try:
            trial.report(loss=1.0)
        except BaseException:
            raise ValueError("something else") from None


@pytest.mark.parametrize("train", [swallow_exceptions, swallow_everything])
def test_no_handler_of_the_function_takes_a_fault_for_its_own(
    study: hw.Study, tmp_path: Path, train: Callable[[hw.Trial], None]
) -> None:
    study = replace(study, train=train, search="random", lanes=1)
    with pytest.raises(UnpluggedError):
        replace(study, callbacks=[At(2, unplug)]).run(num_trials=2)
    result = study.resume()
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 2
    assert {report.metrics["loss"] for trial in result.trials for report in trial.history} == {1.0}


class Once:
    """Kills a process, once."""

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "killed"

    def kill(self, pid: int) -> None:
        try:
            self._mark.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("num_read", [50, 130, 400], ids=["first epoch", "second stage", "third stage"])
def test_what_a_lost_process_trained_trains_on_in_another(
    study: hw.Study, tmp_path: Path, undisturbed: Result, lanes: int, num_read: int
) -> None:
    once, here = Once(tmp_path), os.getpid()
    read: Counter[int] = Counter()

    def train(trial: hw.Trial) -> None:
        train_small(trial, Counting(count))

    def count() -> None:
        read[os.getpid()] += 1
        if os.getpid() != here and read[os.getpid()] == num_read:
            once.kill(os.getpid())

    result = replace(study, train=train, executor=hw.ProcessExecutor(2), lanes=lanes).run(num_trials=NUM_TRIALS)
    assert (tmp_path / "killed").exists()
    assert_same(result, undisturbed)


class Counting(Dataset[tuple[Tensor, Tensor]]):
    """The data of the small study, which tell when they are read."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self._tell()
        return INPUTS[index], TARGETS[index]


class Flowing(IterableDataset[tuple[Tensor, Tensor]]):
    """The same data without places, which tell when they are read."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self._tell()
        yield from zip(INPUTS, TARGETS, strict=True)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_lost_process_that_loads_data_is_no_result(study: hw.Study, tmp_path: Path, executor: str) -> None:
    once = Once(tmp_path)

    def kill_worker() -> None:
        if torch.utils.data.get_worker_info() is not None:
            once.kill(os.getpid())

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(6, 3).double())
        loader = trial.prepare_data_loader(Flowing(kill_worker), batch_size=48, num_workers=1)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            trial.report(loss=1.0)

    result = replace(study, train=train, search="random", lanes=1, executor=executor).run(num_trials=2)
    assert (tmp_path / "killed").exists()
    assert [(trial.status, trial.epochs) for trial in result.trials] == [(Status.COMPLETED, 2)] * 2


def test_a_group_that_runs_again_goes_on_from_the_epoch_that_was_saved_last(
    study: hw.Study, undisturbed: Result, tmp_path: Path
) -> None:
    """It began at an epoch, was saved at a later one, and raised: its weights are those of the later one."""
    raised = tmp_path / "raised"  # a variable would go back with the trial

    def train(trial: hw.Trial) -> None:
        inner = trial.report

        def report(**metrics: Any) -> None:
            inner(**metrics)
            if not raised.exists() and len(trial.lanes) > 1 and trial.lanes[0].start_epoch:
                raised.touch()
                raise RuntimeError("once")

        trial.report = report  # type: ignore[method-assign]  # to raise right after a report
        train_small(trial)

    result = replace(study, train=train).run(num_trials=NUM_TRIALS)
    assert raised.exists()
    assert_same(result, undisturbed)


def resume_after_death(study: hw.Study) -> Result:
    """Resume as another process would, for whom the one that could not give its lease back is gone."""
    assert isinstance(study.storage, Path)
    with open_store(study.storage) as store:
        holder = store.read_lease(store.study().id)
        if holder is not None:
            store.release_lease(store.study().id, holder.fence)
    return study.resume()
