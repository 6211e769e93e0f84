"""Studies on workers that join: they come late, leave, die and are waited for, and the table stays the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.execute.clusters import await_truth
from tests.execute.joiners import end_worker, find_port, find_trainer, list_children_of, open_workers, start_worker
from tests.execute.lab import STUDY, assert_same, count_reports, train
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.execute.join_keys import have_key
from headwater.report import Callback
from headwater.trials import Report, Result

NUM_TRIALS = 6
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plain() -> Result:
    return replace(STUDY, lanes=1).run(num_trials=NUM_TRIALS)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "key"


@pytest.fixture
def executor(key_file: Path) -> Iterator[hw.JoinExecutor]:
    executor = hw.JoinExecutor(key_file=key_file)
    yield executor
    executor.close()


class AtReport(Callback):
    """Does something once, when so many reports have come."""

    def __init__(self, num_left: int, act: Callable[[], None]) -> None:
        self._num_left = num_left
        self._act = act

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._act()


def train_here(trial: hw.Trial) -> None:
    """Train, and say in which process."""
    report = trial.report
    trial.report = lambda **metrics: report(process=float(os.getpid()), **metrics)  # type: ignore[method-assign]
    train(trial)


def list_processes(result: Result) -> set[float]:
    return {report.metrics["process"] for trial in result.trials for report in trial.history}


def run(executor: hw.JoinExecutor, *callbacks: Callback, tmp_path: Path) -> Result:
    study = replace(STUDY, train=train_here, lanes=1, executor=executor, storage=tmp_path / "s.db")
    return replace(study, callbacks=callbacks).run(num_trials=NUM_TRIALS)


def test_a_worker_that_joins_late_is_used(
    executor: hw.JoinExecutor, key_file: Path, tmp_path: Path, plain: Result
) -> None:
    late: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "log"

    def start_another() -> None:
        late.append(start_worker(executor.url, key_file, log=log))
        await_truth(lambda: log.exists() and "joined" in log.read_text())

    first = start_worker(executor.url, key_file)  # and not awaited: the study waits itself
    try:
        result = run(executor, AtReport(1, start_another), tmp_path=tmp_path)
        assert len(list_processes(result)) == 2
        assert_same(result, plain, tolerance=0.0)
        assert [worker.wait() for worker in (first, *late)] == [0, 0]
        assert "needs it no more" in log.read_text()
    finally:
        for worker in (first, *late):
            end_worker(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_leave_goes_at_its_next_report_and_nothing_is_trained_twice(
    number: int, executor: hw.JoinExecutor, key_file: Path, tmp_path: Path, plain: Result
) -> None:
    with open_workers(executor, key_file) as workers:
        leave = AtReport(3, lambda: workers[0].send_signal(number))
        gone = AtReport(count_reports(plain) - 1, lambda: await_truth(lambda: workers[0].poll() is not None))
        result = run(executor, leave, gone, tmp_path=tmp_path)
        assert workers[0].wait() == 0
        assert workers[1].poll() is None
    assert_same(result, plain, tolerance=0.0)
    assert result.num_lane_steps == plain.num_lane_steps


def test_a_worker_that_no_study_needs_yet_leaves_at_once_and_the_study_does_without_it(
    executor: hw.JoinExecutor, key_file: Path, tmp_path: Path, plain: Result
) -> None:
    with open_workers(executor, key_file) as workers:
        workers[0].send_signal(signal.SIGTERM)
        assert workers[0].wait() == 0  # nobody asks the executor for anything until then
        result = run(executor, tmp_path=tmp_path)
    assert_same(result, plain, tolerance=0.0)


@pytest.mark.parametrize("whom", ["keeper", "trainer"])
def test_a_worker_that_is_killed_costs_what_it_trained_since_the_last_state(
    whom: str, executor: hw.JoinExecutor, key_file: Path, tmp_path: Path, plain: Result
) -> None:
    with open_workers(executor, key_file) as workers:
        trainers: list[int] = []

        def kill() -> None:
            trainers.append(find_trainer(workers[0]))
            os.kill(workers[0].pid if whom == "keeper" else trainers[0], signal.SIGKILL)

        result = run(executor, AtReport(3, kill), tmp_path=tmp_path)
        await_truth(lambda: not Path(f"/proc/{trainers[0]}").exists())
        assert (workers[0].poll() is None) == (whom == "trainer")
    assert_same(result, plain, tolerance=0.0)


def test_the_lease_of_a_worker_ends(executor: hw.JoinExecutor, key_file: Path, tmp_path: Path, plain: Result) -> None:
    log = tmp_path / "log"
    brief = start_worker(executor.url, key_file, "--lease", "0.5s", log=log)
    with open_workers(executor, key_file, 1):
        assert_same(run(executor, tmp_path=tmp_path), plain, tolerance=0.0)
        assert brief.wait() == 0
        assert "asked to leave" in log.read_text()


ENDLESS = """
import sys
import headwater as hw

def train(trial):
    for _ in trial.epochs(10**9):
        trial.report(loss=1.0)

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=None, lanes=1)
study.executor = hw.JoinExecutor(sys.argv[1], key_file=sys.argv[2])
study.run(num_trials=2)
"""


def test_workers_of_a_study_that_dies_end(key_file: Path, tmp_path: Path) -> None:
    have_key(key_file)
    (tmp_path / "endless.py").write_text(ENDLESS)
    address = f"127.0.0.1:{find_port()}"
    log = tmp_path / "log"
    study = subprocess.Popen([sys.executable, tmp_path / "endless.py", address, key_file], stderr=subprocess.DEVNULL)
    worker = start_worker(address, key_file, "--patience", "60s", log=log)
    try:
        await_truth(lambda: log.exists() and "joined" in log.read_text())
        await_truth(lambda: bool(list_children_of(worker)))
        trainer = find_trainer(worker)
        study.kill()
        study.wait()
        await_truth(lambda: not Path(f"/proc/{trainer}").exists())
        worker.send_signal(signal.SIGTERM)  # it looks for the study for a while
        assert worker.wait() == 0
    finally:
        study.kill()
        study.wait()
        end_worker(worker)


@pytest.mark.parametrize("surrogate", [None, hw.Surrogate(scale=2, min_width=4, num_checked=0)])
def test_a_study_that_nobody_joins_can_be_interrupted(
    surrogate: hw.Surrogate | None, key_file: Path, tmp_path: Path
) -> None:
    interrupts = [signal.SIGINT]

    def interrupt_once() -> None:
        if interrupts:
            os.kill(os.getpid(), interrupts.pop())

    executor = hw.JoinExecutor(key_file=key_file, see_to_workers=interrupt_once)
    study = replace(STUDY, surrogate=surrogate, executor=executor, storage=tmp_path / "s.db", on_interrupt="return")
    result = study.run(num_trials=NUM_TRIALS)
    assert result.was_interrupted
    assert count_reports(result) == 0


def test_a_study_that_nobody_joins_ends_when_its_time_is_over(key_file: Path) -> None:
    executor = hw.JoinExecutor(key_file=key_file)
    result = replace(STUDY, executor=executor).run(num_trials=NUM_TRIALS, time_budget=0.5)
    assert "time budget" in str(result.ended_early)


@pytest.fixture
def stranger(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hw.JoinExecutor]:
    """An executor whose workers see that they have not the files of the study; nothing of it is left with them."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "ours"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "theirs"))
    executor = hw.JoinExecutor(key_file=key_file)
    assert executor.list_devices() == []
    (home,) = (tmp_path / "ours").glob("*/home")
    home.unlink()
    yield executor
    executor.close()
    assert not list((tmp_path / "theirs").glob("headwater-copies-*"))


def test_a_worker_without_the_files_of_the_study_gets_them_through_the_line(
    stranger: hw.JoinExecutor, key_file: Path, tmp_path: Path
) -> None:
    inputs = torch.randn(3000, 6, dtype=torch.float64)

    def train_elsewhere(trial: hw.Trial) -> None:
        is_copy = float("headwater-copies" in Path("/proc/self/maps").read_text())
        model = trial.prepare_model(torch.nn.Linear(6, 1).double())
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(4):
            optimizer.zero_grad()
            loss = (model(inputs) - inputs[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss, is_copy=is_copy)

    study = replace(STUDY, train=train_elsewhere, search="pbt", lanes=1, max_epochs=4, storage=tmp_path / "s.db")
    plain = replace(study, executor="inline", storage=None).run(num_trials=4)
    with open_workers(stranger, key_file):
        result = replace(study, executor=stranger).run(num_trials=4)
    assert_same(result, plain)
    assert {report.metrics["is_copy"] for trial in result.trials for report in trial.history} == {1.0}


def test_workers_that_share_no_disk_train_a_target_as_ranks(
    stranger: hw.JoinExecutor, key_file: Path, tmp_path: Path
) -> None:
    inputs = torch.randn(1000, 6, dtype=torch.float64)
    seen = tmp_path / "seen"
    seen.mkdir()

    def wide(trial: hw.Trial) -> None:
        layers = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        model = trial.prepare_model(layers.double())
        loader = trial.prepare_data_loader(TensorDataset(inputs, inputs.sum(1).gt(0).long()), batch_size=500)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        (seen / str(os.getpid())).touch()
        for _ in trial.epochs(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss)

    surrogate = hw.Surrogate(scale=4, spread="ranks")
    study = replace(STUDY, train=wide, surrogate=surrogate, lanes=2, max_epochs=2, executor="inline")
    with open_workers(stranger, key_file):
        there = replace(study, executor=stranger).run(num_trials=4)
    assert len([*seen.iterdir()]) == 2
    here = study.run(num_trials=4)
    assert there.best.config == here.best.config
    assert there.best.value("loss") == pytest.approx(here.best.value("loss"), rel=1e-9)
