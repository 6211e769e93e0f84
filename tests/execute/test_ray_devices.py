"""Devices of a real Ray cluster that go, come again and join while a study runs change none of its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.execute.calling import run_python
from tests.execute.clusters import add_node, await_truth, open_cluster
from tests.execute.lab import STUDY, assert_same, train
from tests.spans import assert_no_overlap

import headwater as hw
from headwater.report import Callback
from headwater.store import find_runner, leases, open_store, read_spans
from headwater.store.device_wishes import read_devices
from headwater.trials import DevicePool, Report, Span, SpanPurpose

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(400)

NUM_TRIALS = 12


@pytest.fixture
def cluster() -> Iterator[Any]:
    with open_cluster() as cluster:
        yield cluster


def train_beside(folder: Path) -> Callable[[hw.Trial], None]:
    """Return a function that goes on only when as many processes have trained as a file there says."""

    def train_there(trial: hw.Trial) -> None:
        (folder / f"pid-{os.getpid()}").touch()
        await_truth(lambda: len([*folder.glob("pid-*")]) >= int((folder / "awaited").read_text()))
        train(trial)

    return train_there


class Steps(Callback):
    """Takes one step after the other, each at the first report at which the devices are as it needs them."""

    def __init__(self, path: Path, steps: Sequence[tuple[Callable[[DevicePool], bool], Callable[[DevicePool], None]]]):
        self.left = list(steps)
        self._path = path

    def on_reports(self, reports: Sequence[Report]) -> None:
        with open_store(self._path, create=False) as store:
            runner = find_runner(store, 1)
            assert runner is not None
            shown = read_devices(store, 1, runner)
        assert shown is not None
        if self.left and self.left[0][0](shown.pool):
            self.left.pop(0)[1](shown.pool)


def test_devices_that_go_come_again_and_join_change_nothing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LISTEN_S", 0.0)
    path, told = tmp_path / "study.db", list[str]()

    def ask(*words: str) -> None:
        told.append(run_python("-m", "headwater", "devices", *words, "--storage", str(path), folder=tmp_path))

    def await_processes(count: int) -> None:
        (tmp_path / "awaited").write_text(str(count))

    def take_back(pool: DevicePool) -> None:
        ask("add", "1")
        await_processes(3)

    def join(pool: DevicePool) -> None:
        add_node(cluster)
        await_processes(4)

    await_processes(2)
    steps = Steps(
        path,
        [
            (lambda pool: len(pool.names) == 2, lambda pool: ask("remove", pool.names[1])),
            (lambda pool: len(pool.names) == 1 and len(pool.spare) == 1, take_back),
            (lambda pool: len([*tmp_path.glob("pid-*")]) == 3, join),
        ],
    )
    study = replace(STUDY, train=train_beside(tmp_path), search="asha", lanes=2)
    result = replace(study, storage=path, executor=hw.RayExecutor(), callbacks=[steps]).run(num_trials=NUM_TRIALS)
    assert not steps.left
    assert_same(result, replace(STUDY, search="asha", lanes=2).run(num_trials=NUM_TRIALS))
    assert_no_overlap(path)
    with open_store(path, create=False) as store:
        spans = read_spans(store)
    gone = told[0].partition("to give up ")[2].partition(" after")[0]
    (away,) = (span for span in spans if span.device == gone and span.purpose is SpanPurpose.ABSENCE)
    before, after = _split(spans, gone, away)
    assert before
    assert after
    assert f"to train on {gone} too" in told[1]
    assert len({span.device for span in spans}) == 3, "the node that joined has trained"


def _split(spans: Sequence[Span], device: str, away: Span) -> tuple[list[Span], list[Span]]:
    """Return what a device did before it was away and afterwards; it did nothing meanwhile."""
    mine = [span for span in spans if span.device == device and span is not away]
    before = [span for span in mine if span.end_s <= away.begin_s]
    after = [span for span in mine if span.begin_s >= away.end_s]
    assert len(before) + len(after) == len(mine)
    return before, after
