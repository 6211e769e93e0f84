"""This process trains while worker processes start, and the study moves when they are ready and worth it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.execute.lab import list_children

import headwater as hw
from headwater.conduct.run_progress import RunProgress
from headwater.execute.auto import AutoExecutor
from headwater.report import Callback
from headwater.store import open_store
from headwater.trials import Report, Status

NUM_TRIALS = 100_000
"""More than train before worker processes are ready."""


def train(trial: hw.Trial) -> None:
    for epoch in trial.epochs(3):
        trial.report(loss=float(epoch))


def make(function: Callable[[hw.Trial], None], executor: AutoExecutor, **settings: Any) -> hw.Study:
    usual: dict[str, Any] = {"metric": "loss", "storage": None, "lanes": 1, "packing": None, **settings}
    return hw.Study(function, space={"lr": hw.uniform(0, 1)}, executor=executor, **usual)


def forecast(seconds: Callable[[], float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunProgress, "foresee", lambda progress: seconds())


def test_a_study_that_is_nearly_over_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast(lambda: 0.0, monkeypatch)
    children = CountChildren()
    executor = AutoExecutor(2, patience_s=0.0)
    result = make(train, executor, callbacks=[children]).run(num_trials=3)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 3
    assert executor.is_inline
    assert set(children.counts) == {children.num_before}


def compute(trial: hw.Trial) -> None:
    begin_s = time.process_time()
    while time.process_time() - begin_s < 0.4:
        pass
    trial.report(loss=1.0)


@pytest.mark.parametrize("seconds_left", [1e6, None])
@pytest.mark.parametrize("patience_s", [0.0, math.inf])
def test_a_study_without_an_executor_of_its_own_is_as_patient_as_the_module_says(
    patience_s: float, seconds_left: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that, no other test moves to processes because the machine is slow."""
    monkeypatch.setattr("headwater.execute.auto.PATIENCE_S", patience_s)
    forecast(lambda: seconds_left, monkeypatch)
    children = CountChildren()
    usual: dict[str, Any] = {"metric": "loss", "storage": None, "lanes": 1, "packing": None, "devices": 2}
    hw.Study(compute, space={"lr": hw.uniform(0, 1)}, callbacks=[children], **usual).run(num_trials=3)
    assert (max(children.counts) > children.num_before) == (patience_s == 0.0)


class CountChildren(Callback):
    """Counts the processes there are at every report."""

    def __init__(self) -> None:
        self.num_before = len(list_children())
        self.counts: list[int] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.counts.append(len(list_children()))


@pytest.mark.parametrize("seconds_left", [1e6, None])
def test_this_process_trains_until_workers_are_ready_and_then_they_do(
    seconds_left: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast(lambda: seconds_left, monkeypatch)
    parent = os.getpid()

    def tell_process(trial: hw.Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=float(os.getpid() == parent))

    before, executor = list_children(), AutoExecutor(2, patience_s=0.0)
    result = make(tell_process, executor).run(num_trials=NUM_TRIALS, target=0.0)
    here = [trial for trial in result.trials if trial.history and trial.history[-1].metrics["loss"] == 1.0]
    assert not executor.is_inline
    assert len(here) > 3, "it trained while the processes started"
    assert list_children() <= before


def test_processes_that_turn_out_not_to_be_needed_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    children, left_s = CountChildren(), [1e6]
    forecast(lambda: left_s[0], monkeypatch)

    def become_short(trial: hw.Trial) -> None:
        if len(list_children()) > children.num_before:
            left_s[0] = 0.0
        train(trial)

    executor = AutoExecutor(2, patience_s=0.0)
    result = make(become_short, executor, callbacks=[children]).run(num_trials=20)
    assert all(trial.status is Status.COMPLETED for trial in result.trials)
    assert executor.is_inline
    assert max(children.counts) == children.num_before + 2
    assert len(list_children()) == children.num_before


def test_a_study_that_cannot_be_sent_stays_in_this_process_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast(lambda: None, monkeypatch)
    lock = threading.Lock()

    def hold_lock(trial: hw.Trial) -> None:
        with lock:
            train(trial)

    executor = AutoExecutor(2, patience_s=0.0)
    result = make(hold_lock, executor, storage=tmp_path / "study.db").run(num_trials=5)
    assert all(trial.status is Status.COMPLETED for trial in result.trials)
    assert executor.is_inline
    with open_store(tmp_path / "study.db", create=False) as store:
        notes = [note.text for note in store.notes(1)]
    (note,) = [text for text in notes if "the study stays in this process" in text]
    assert "variable 'lock' of the enclosing function, is of type lock" in note
