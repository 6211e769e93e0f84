"""Running a study in a process of its own, into a fault or out of it."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tests.faults.clusters import find_cluster
from tests.faults.killing import at_call, count_calls, watch_calls
from tests.faults.kinds import KINDS, Kind, UnpluggedError, Where, die_at_once
from tests.faults.records import RECORD, is_recorded, save_best
from tests.faults.subjects import INPUTS, NUM_TRIALS, TARGETS, build_study, train_model
from tests.faults.watching import WatchedExecutor
from torch.utils.data import IterableDataset, get_worker_info

import headwater as hw
from headwater.errors import StoreError, StudyError
from headwater.execute import Executor
from headwater.report import Callback
from headwater.store import engine
from headwater.train.shared_loading import RankAccess
from headwater.trials import Report

LOCK_TIMEOUT_S = 0.3
DONE, ENDED, REFUSED, BROKEN = 0, 3, 4, 5
"""How a process that ran a study ends: at its end; by a fault that it named; for another runs it; by anything else."""
HIT, SAID = "hit", "said"
"""Files: there once a process has been killed; and what the last process had to say."""
MOST_CALLS_OF_WORKER, MOST_CALLS_OF_RANK, MOST_PASSES, MOST_REPORTS = 2500, 1500, 8, 5
"""Moments are drawn up to these."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault to try."""

    kind: str
    search: str
    executor: str
    seed: int

    def __str__(self) -> str:
        return f"--kind '{self.kind}' --search {self.search} --executor {self.executor} --seed {self.seed}"

    @property
    def flows(self) -> bool:
        """Whether the data come from a process of their own."""
        return self.kind in KINDS and KINDS[self.kind].where is Where.LOADER


def run_alone(case: Case, folder: Path) -> int:
    """Run the study of a case without its fault; return the status of its process."""
    study = _build(case, folder)
    return _run(lambda: save_best(study.run(num_trials=NUM_TRIALS[case.search]), folder), folder).status


def count_alone(case: Case, folder: Path) -> int:
    """Return how many calls the study of a case takes without its fault."""
    study = _build(case, folder)

    def count() -> None:
        calls = count_calls(lambda: study.run(num_trials=NUM_TRIALS[case.search]), lambda _: None)
        (folder / SAID).write_text(str(calls))

    assert _run(count, folder).status == DONE, (folder / SAID).read_text()
    return int((folder / SAID).read_text())


class Ended(NamedTuple):
    """How a process ended, and what the system knew it by."""

    status: int
    pid: int


def run_into_fault(case: Case, folder: Path, num_calls: int) -> Ended:
    """Run the study of a case until its fault comes, or to its end; return how its process ended."""
    kind, rng = KINDS[case.kind], random.Random(case.seed)

    def work() -> None:
        study = _arm(_build(case, folder), case, folder, rng)
        if kind.where is Where.STUDY:
            first = num_calls // 2 if case.search == "ranks" else 1  # the search comes first
            watch_calls(at_call(rng.randrange(first, num_calls), lambda: kind.begin(folder)))
        result = study.run(num_trials=NUM_TRIALS[case.search])
        if kind.where is Where.WORKER:  # it ends by itself, and need not be resumed
            save_best(result, folder)

    return _run(work, folder)


def resume(case: Case, folder: Path) -> list[int]:
    """Resume the study of a case, in as many processes at once as its kind says; return their statuses."""
    study = _build(case, folder)
    can_resume = is_recorded(folder)

    def work() -> None:
        result = study.resume() if can_resume else study.run(num_trials=NUM_TRIALS[case.search])
        save_best(result, folder)

    processes = [_start(work, folder) for _ in range(KINDS[case.kind].num_resumes if can_resume else 1)]
    for process in processes:
        process.join()
    return [process.exitcode if process.exitcode is not None else BROKEN for process in processes]


def _build(case: Case, folder: Path) -> hw.Study:
    settings: dict[str, Any] = {}  # Any: settings of a study
    if case.flows:
        settings["train"] = lambda trial: train_model(trial, Flowing())
    return build_study(case.search, _build_executor(case, folder), folder / RECORD, **settings)


def _build_executor(case: Case, folder: Path) -> str | Executor:
    if case.executor == "inline":
        return "inline"
    executor = hw.ProcessExecutor(2) if case.executor == "processes" else hw.RayExecutor(find_cluster().address)
    return WatchedExecutor(executor, folder)


def _arm(study: hw.Study, case: Case, folder: Path, rng: random.Random) -> hw.Study:
    """Put the fault into the study's function or a callback, where it comes from there."""
    kind = KINDS[case.kind]
    if kind.where is Where.CALLBACK:
        study.callbacks = [_At(rng.randrange(1, MOST_REPORTS), kind, folder)]
    elif kind.where is Where.LOADER:
        tell = _dying_after(rng.randrange(1, MOST_PASSES), folder)
        study.train = lambda trial: train_model(trial, Flowing(tell))
    elif kind.where is Where.WORKER:
        here, train = os.getpid(), study.train
        moment = rng.randrange(1, MOST_CALLS_OF_RANK if case.search == "ranks" else MOST_CALLS_OF_WORKER)

        def train_watched(trial: hw.Trial) -> None:
            is_meant = case.search != "ranks" or isinstance(trial._access, RankAccess)  # the trial on all devices
            if is_meant and os.getpid() != here and not (folder / HIT).exists():
                watch_calls(at_call(moment, lambda: _begin_once(kind, folder)))
            train(trial)

        study.train = train_watched
    return study


def _dying_after(num_passes: int, folder: Path) -> Callable[[], None]:
    """Return what lets one process that loads data die, at the pass of this number."""
    count = folder / "passes"

    def tell() -> None:
        if get_worker_info() is not None and not (folder / HIT).exists():
            with count.open("a") as file:
                file.write("x")
            if count.stat().st_size >= num_passes:
                _die_once(folder)

    return tell


def _die_once(folder: Path) -> None:
    _begin_once(Kind(die_at_once), folder)


def _begin_once(kind: Kind, folder: Path) -> None:
    try:
        (folder / HIT).touch(exist_ok=False)
    except FileExistsError:
        return
    kind.begin(folder)


class Flowing(IterableDataset[Any]):
    """The data as a stream that a process of its own loads, and that tells when a pass begins."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self._tell = tell

    def __iter__(self) -> Iterator[Any]:
        self._tell()
        yield from zip(INPUTS, TARGETS, strict=True)


class _At(Callback):
    """Lets a fault begin after so many reports."""

    def __init__(self, num_reports: int, kind: Kind, folder: Path) -> None:
        self._num_left = num_reports
        self._kind = kind
        self._folder = folder

    def on_reports(self, reports: Sequence[Report]) -> None:
        self._num_left -= 1
        if self._num_left == 0:
            self._kind.begin(self._folder)


def _run(work: Callable[[], object], folder: Path) -> Ended:
    process = _start(work, folder)
    process.join()
    assert process.pid is not None
    return Ended(BROKEN if process.exitcode is None else process.exitcode, process.pid)


def _start(work: Callable[[], object], folder: Path) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=_work, args=(work, folder / SAID))
    process.start()
    return process


def _work(work: Callable[[], object], said: Path) -> None:
    """Work, and end with the status that says how it went."""
    torch.set_num_threads(1)
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    engine.LOCK_TIMEOUT_S = LOCK_TIMEOUT_S
    try:
        work()
    except (StoreError, UnpluggedError) as error:
        status, text = ENDED, str(error)
    except StudyError as error:
        status, text = REFUSED if "is still running" in str(error) else BROKEN, str(error)
    except Exception:
        status, text = BROKEN, traceback.format_exc()
    else:
        return
    with suppress(OSError):  # the disk is full, or no file may grow
        said.write_text(text)
    sys.exit(status)
