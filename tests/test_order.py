"""Studies whose searchers get results as they arrive: on several executors, interrupted, killed, resumed."""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.execute.lab import STUDY as TORCH_STUDY
from tests.execute.lab import StopAt
from tests.execute.simulation import list_gpus, make_study
from tests.faults.killing import at_call, count_calls, die

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.search import ASHA, Problem, ResultOrder, Searcher
from headwater.space import Config
from headwater.store import open_store
from headwater.trials import Arrival, Decision, Report, Result, Segment, Status

SEARCH = ASHA(concurrency=4, reduction=2, max_epochs=9)
PATIENCE_S = 60.0
"""How long a trial that waits for another one waits before it fails."""


def train(trial: hw.Trial) -> None:
    for epoch in trial.epochs(9):
        trial.report(loss=abs(trial.config["lr"] - 0.3) + 1 / (epoch + 1))


STUDY = hw.Study(
    train,
    space={"lr": hw.uniform(0.0, 1.0)},
    metric="loss",
    search=SEARCH,
    order="arrival",
    max_epochs=9,
    executor="inline",
    lanes=1,
    packing=None,
)


def read_arrivals(path: Path) -> list[Arrival]:
    with open_store(path, create=False) as store:
        return store.arrivals(store.study().id)


def list_promoted(result: Result) -> set[tuple[int, int]]:
    """Return who was promoted from which rung."""
    return {(trial.number, rung) for trial in result.trials for rung in (1, 2, 4, 8) if trial.epochs > rung}


# Replay


def test_what_was_decided_before_an_interruption_is_what_an_undisturbed_run_decides(tmp_path: Path) -> None:
    whole = replace(STUDY, storage=tmp_path / "whole.db").run(num_trials=12)
    for num_reports in range(1, 22, 3):
        path = tmp_path / f"{num_reports}.db"
        study = replace(STUDY, storage=path)
        cut = replace(study, callbacks=[StopAt(num_reports)]).run(num_trials=12)
        assert cut.was_interrupted
        seen = read_arrivals(path)
        assert seen == read_arrivals(tmp_path / "whole.db")[: len(seen)]
        result = study.resume()
        assert read_arrivals(path)[: len(seen)] == seen
        assert [trial.config for trial in result.trials] == [trial.config for trial in whole.trials]
        assert list_promoted(cut) <= list_promoted(result)
        assert all(trial.status is not Status.RUNNING for trial in result.trials)


@pytest.mark.timeout(300)
def test_what_was_decided_before_a_kill_stays(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    path = tmp_path / "killed.db"
    study = replace(TORCH_STUDY, search=SEARCH, order="arrival", storage=path, lanes=2)
    whole = replace(study, storage=tmp_path / "whole.db")
    num_calls = count_calls(lambda: whole.run(num_trials=12), lambda _: None)
    moments = random.Random(3)
    seen: list[Arrival] = []
    for life in range(6):
        process = multiprocessing.get_context("fork").Process(
            target=_live, args=(study, life == 0, moments.randrange(num_calls // 4, num_calls // 2))
        )
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        now = read_arrivals(path)
        assert now[: len(seen)] == seen
        seen = now
    result = study.resume()
    assert read_arrivals(path)[: len(seen)] == seen
    assert len(result.trials) == 12
    assert all(trial.status is not Status.RUNNING for trial in result.trials)


def _live(study: hw.Study, is_new: bool, num_calls: int) -> None:
    torch.set_num_threads(1)
    count_calls(lambda: study.run(num_trials=12) if is_new else study.resume(), at_call(num_calls, die))


def test_a_resumed_search_is_shown_what_the_first_one_saw(tmp_path: Path) -> None:
    problems: list[Problem] = []

    def build(problem: Problem) -> Searcher:
        problems.append(problem)
        return SEARCH(problem)

    study = replace(STUDY, search=build, storage=tmp_path / "study.db")
    replace(study, callbacks=[StopAt(12)]).run(num_trials=12)
    study.resume()
    assert [problem.order for problem in problems] == [ResultOrder.ARRIVAL] * 2
    assert problems[0].arrivals == ()
    assert problems[1].arrivals
    assert list(problems[1].arrivals) == read_arrivals(tmp_path / "study.db")[: len(problems[1].arrivals)]


# Nothing waits


class Fifo:
    """Lets one process wait for another without a clock."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self.held = os.open(path, os.O_RDWR)  # so that a word stays in it until somebody waits

    def wait(self) -> None:
        """Return when somebody has sent a word, and raise if nobody does."""
        source = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        ready, _, _ = select.select([source], [], [], PATIENCE_S)
        assert ready, "nobody was promoted meanwhile"

    def send(self) -> None:
        """Send a word to whoever waits, or will."""
        target = os.open(self.path, os.O_WRONLY)
        os.write(target, b"!")


@pytest.mark.timeout(300)
def test_a_slow_trial_on_a_process_does_not_hold_up_promotions(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "fifo")

    def wait_for_a_promotion(trial: hw.Trial) -> None:
        place = trial.config["place"]
        for epoch in trial.epochs(9):
            if place == 0 and epoch == 0:
                fifo.wait()
            if place != 0 and epoch > 0:
                fifo.send()
            trial.report(loss=float(place) + 1 / (epoch + 1))

    study = replace(
        STUDY,
        train=wait_for_a_promotion,
        space={"place": hw.grid(list(range(8)))},
        search=_InGridOrder(ASHA(concurrency=2, reduction=2, max_epochs=9)),
        storage=tmp_path / "study.db",
        executor="processes",
        devices=2,
    )
    result = study.run()
    assert [trial.error for trial in result.trials] == [None] * 8
    assert read_arrivals(tmp_path / "study.db")[0].number != 0


class _InGridOrder:
    """Has a search try a grid from its beginning, so that a trial's number is its value."""

    def __init__(self, search: ASHA) -> None:
        self._search = search

    def __call__(self, problem: Problem) -> Searcher:
        return _Renamed(self._search(problem), list(problem.space.configurations()))


class _Renamed:
    def __init__(self, searcher: Searcher, configs: Sequence[Config]) -> None:
        self._searcher = searcher
        self._configs = configs

    def propose(self, count: int) -> Sequence[Segment]:
        return [replace(one, config=self._configs[one.number]) for one in self._searcher.propose(count)]

    def observe(self, report: Report) -> Decision:
        return self._searcher.observe(report)

    def finish(self, number: int, status: Status) -> None:
        self._searcher.finish(number, status)


def test_no_simulated_device_waits_for_a_slow_trial() -> None:
    """One trial in ten takes fifty times as long; in virtual order, devices wait for it."""
    times = SimulatedTimes(
        epoch_s=lambda config, num_lanes, kind: 100.0 if config["lr"] < 0.1 else 2.0, num_epochs=9, start_s=1.0
    )

    def simulate(order: str) -> float:
        def curve(config: Config, epoch: int) -> dict[str, float]:
            return {"loss": 1 - config["lr"] + 1 / epoch}

        executor = SimulatedExecutor(list_gpus(4), curve, times)
        study = make_study(executor, search=SEARCH, order=order)
        assert len(study.run(60).trials) == 60
        return executor.clock()

    assert simulate("arrival") < 0.75 * simulate("virtual")


# Settings


@pytest.mark.parametrize("order", ["sideways", "", None, 3, ["arrival"]])
def test_another_order_is_refused(order: Any) -> None:
    with pytest.raises(StudyError, match=r"order is .*; it must be one of 'virtual', 'arrival'"):
        replace(STUDY, order=order)


@pytest.mark.parametrize(("ran_with", "resumed_with"), [("arrival", "virtual"), ("virtual", "arrival")])
def test_a_study_is_resumed_in_its_own_order(tmp_path: Path, ran_with: str, resumed_with: str) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db", order=ran_with)
    study.run(num_trials=3)
    with pytest.raises(StudyError, match=f"recorded with order '{ran_with}', but this one has '{resumed_with}'"):
        replace(study, order=resumed_with).resume(num_trials=4)
    assert len(study.resume(num_trials=4).trials) == 4


def test_virtual_order_is_the_default_and_what_earlier_records_have(tmp_path: Path) -> None:
    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=tmp_path / "study.db", lanes=1)
    assert study.order == "virtual"
    study.run(num_trials=2)
    with open_store(tmp_path / "study.db", create=False) as store:
        assert store.study().settings["order"] == "virtual"
