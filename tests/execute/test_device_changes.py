"""Devices that come to a study in real processes, or leave it, change none of its results."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.execute.lab import NUM_EPOCHS, STUDY, StopAt, assert_same, list_children
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.execute import AutoExecutor, Executor, InlineExecutor, ProcessExecutor
from headwater.report import Callback
from headwater.store import find_runner, leases, open_store, read_spans
from headwater.store.device_wishes import read_devices, wish_devices
from headwater.trials import DeviceWish, Report, Result, Span, SpanPurpose

NUM_TRIALS = 8
MORE, FEWER = DeviceWish(num_more=1, asker="anna"), DeviceWish(num_more=-1, asker="anna")


@pytest.fixture(autouse=True)
def _hear_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LISTEN_S", 0.0)


class WishAt(Callback):
    """Wishes something of the devices after so many reports, as another process would; kills a worker right after."""

    def __init__(self, path: Path, wishes: Mapping[int, DeviceWish], kills: str = "") -> None:
        self._path = path
        self._wishes = wishes
        self._kills = kills
        self._num_reports = 0
        self.devices: tuple[str, ...] = ()
        """Those that the run has shown last."""

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_reports += 1
        with open_store(self._path) as store:
            runner = find_runner(store, 1)
            assert runner is not None
            shown = read_devices(store, 1, runner)
            assert shown is not None
            self.devices = shown.pool.names
            if self._num_reports in self._wishes:
                wish_devices(store, 1, runner, self._wishes[self._num_reports])
                _kill_worker(self._kills)


def _kill_worker(name: str) -> None:
    for pid in list_children():
        if name and name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)


def make(path: Path, executor: Executor | str, search: str = "asha", *callbacks: Callback) -> hw.Study:
    return replace(STUDY, search=search, lanes=2, storage=path, name="one", executor=executor, callbacks=callbacks)


@cache
def find_undisturbed(search: str) -> Result:
    return replace(STUDY, search=search, lanes=2).run(num_trials=NUM_TRIALS)


def read(path: Path, device: str) -> list[Span]:
    with open_store(path, create=False) as store:
        return [span for span in read_spans(store) if span.device == device]


@pytest.mark.parametrize("search", ["random", "asha"])
def test_a_device_that_comes_trains(search: str, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    result = make(path, ProcessExecutor(1), search, WishAt(path, {1: MORE})).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed(search))
    away, *trained = read(path, "cpu:1")
    assert away.purpose is SpanPurpose.ABSENCE
    assert trained
    assert all(span.purpose is SpanPurpose.LANES and span.begin_s >= away.end_s for span in trained)
    assert list_children() == set()


@pytest.mark.parametrize("search", ["random", "asha"])
def test_a_device_that_goes_trains_no_more(search: str, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    result = make(path, ProcessExecutor(2), search, WishAt(path, {3: FEWER})).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed(search))
    (away,) = (span for span in read(path, "cpu:1") if span.purpose is SpanPurpose.ABSENCE)
    assert all(span.end_s <= away.begin_s for span in read(path, "cpu:1") if span != away)
    assert list_children() == set()


def test_wishes_one_right_after_the_other_are_all_met(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    gone = DeviceWish(gone=("cpu:0",), asker="anna")
    watcher = WishAt(path, {1: replace(MORE, num_more=2), 2: gone, 3: FEWER, 4: MORE, 5: gone})
    result = make(path, ProcessExecutor(1), "asha", watcher).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed("asha"))
    assert watcher.devices == ("cpu:1",)
    assert_no_overlap(path)


def test_a_worker_that_is_killed_while_it_is_to_leave_costs_no_trial(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    watcher = WishAt(path, {4: FEWER}, kills="cpu:1")
    result = make(path, ProcessExecutor(2), "asha", watcher).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed("asha"))
    assert watcher.devices == ("cpu:0",)


def test_a_study_that_is_stopped_while_a_device_leaves_goes_on_with_what_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    first = make(path, ProcessExecutor(2), "asha", WishAt(path, {3: FEWER}), StopAt(4)).run(num_trials=NUM_TRIALS)
    assert first.was_interrupted
    watcher = WishAt(path, {})
    resumed = make(path, ProcessExecutor(2), "asha", watcher).resume(NUM_TRIALS)
    assert watcher.devices == ("cpu:0", "cpu:1"), "the wish was not for this run"
    assert_same(resumed, find_undisturbed("asha"))


def test_a_study_in_this_process_goes_on_in_others_when_it_is_to_have_more_devices(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    executor = AutoExecutor(1, patience_s=1e6)
    result = make(path, executor, "asha", WishAt(path, {1: MORE})).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed("asha"))
    assert not executor.is_inline
    assert [device.name for device in executor.list_devices()] == ["cpu:0"], "the next run begins as it was told"


@pytest.mark.parametrize("wish", [FEWER, DeviceWish(num_more=-5, asker="anna"), DeviceWish(gone=("gpu:9",))])
def test_a_wish_that_cannot_be_met_changes_nothing(wish: DeviceWish, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    watcher = WishAt(path, {1: wish})
    executor = AutoExecutor(1, patience_s=1e6)
    result = make(path, executor, "asha", watcher).run(num_trials=NUM_TRIALS)
    assert executor.is_inline
    assert watcher.devices == ("cpu:0",)
    assert_same(result, find_undisturbed("asha"))


def test_one_process_says_that_it_stays_one_device(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    result = make(path, InlineExecutor(), "asha", WishAt(path, {1: MORE})).run(num_trials=NUM_TRIALS)
    assert_same(result, find_undisturbed("asha"))
    with open_store(path, create=False) as store:
        notes = [note.text for note in store.notes(1)]
    assert any("it trains in its own process, which is one device" in text for text in notes)
    assert all(trial.epochs <= NUM_EPOCHS for trial in result.trials)
