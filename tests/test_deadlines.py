"""When a run is over, by a clock that jumps: the training function says how long everything takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.clocks import JumpingClock
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.conduct.limits import Limits
from headwater.execute import ProcessExecutor
from headwater.report import Callback
from headwater.train.profiling import BUDGET_SHARE, profile_lanes
from headwater.train.running import TrainingSetup
from headwater.trials import Deadline, Lane, Result, Status

SPACE = {"lr": hw.loguniform(1e-3, 0.5)}


def timed(clock: JumpingClock, epoch_s: float, num_epochs: int = 4) -> Callable[[hw.Trial], None]:
    """Return a function whose epochs take so long, and which reports when each began."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(num_epochs):
            began = clock()
            loss = model(torch.ones(3, 2)).square().mean()
            loss.backward()
            optimizer.step()
            clock.jump(epoch_s)
            trial.report(loss=loss.item(), began=began)

    return train


def make_study(train: Callable[[hw.Trial], None]) -> hw.Study:
    return hw.Study(train, space=SPACE, metric="loss", storage=None, executor="inline", lanes=1, packing=None)


def run(study: hw.Study, clock: JumpingClock, seconds: float, num_trials: int = 8) -> Result:
    return study.run_within(Limits(num_trials=num_trials, deadline=Deadline.start(seconds, clock)))


def test_what_is_under_way_at_the_deadline_ends_with_its_next_report() -> None:
    clock = JumpingClock()
    result = run(make_study(timed(clock, epoch_s=3.0, num_epochs=5)), clock, seconds=10)
    assert [trial.epochs for trial in result.trials] == [4, 0, 0, 0, 0, 0, 0, 0]
    assert result.ended_early == "the time budget of 10 s is used up"


def test_no_group_starts_that_would_report_after_the_deadline() -> None:
    clock = JumpingClock()
    result = run(make_study(timed(clock, epoch_s=3.0, num_epochs=2)), clock, seconds=8)
    assert [trial.epochs for trial in result.trials][:3] == [2, 0, 0]
    assert clock() == 1006.0
    assert result.ended_early == ("the time budget of 8 s has no room for another group, whose epochs take about 3.0 s")


def test_what_happened_between_the_call_and_the_search_counts() -> None:
    clock = JumpingClock()
    study = make_study(timed(clock, epoch_s=1.0, num_epochs=2))
    limits = Limits(num_trials=8, deadline=Deadline.start(5.0, clock))
    clock.jump(4.0)
    assert sum(trial.epochs for trial in study.run_within(limits).trials) == 1


def test_a_run_without_time_comes_to_one_report_all_the_same() -> None:
    clock = JumpingClock()
    result = run(make_study(timed(clock, epoch_s=1.0)), clock, seconds=0)
    assert [trial.epochs for trial in result.trials][:2] == [1, 0]


def test_a_resumed_run_has_a_clock_of_its_own(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = replace(make_study(timed(clock, epoch_s=1.0, num_epochs=2)), storage=tmp_path / "s.db", name="s")
    run(study, clock, seconds=3, num_trials=4)
    limits = Limits(deadline=Deadline.start(3.0, clock))
    result = study.run_within(limits, is_new=False)
    assert [trial.epochs for trial in result.trials] == [2, 2, 2, 0]
    assert study.run_within(Limits(), is_new=False).ended_early is None


def test_processes_under_way_at_the_deadline_end_with_their_next_reports() -> None:
    """A process may take so long to start that its first epoch begins after the deadline; it has no second."""
    clock = JumpingClock()
    study = replace(make_study(timed(clock, epoch_s=1.0, num_epochs=50)), executor=ProcessExecutor(2))
    result = run(study, clock, seconds=8)
    reports = [report for trial in result.trials for report in trial.history]
    assert result.ended_early is not None
    assert all(report.metrics["began"] < 1008.0 for report in reports if report.epoch > 1)
    assert sum(report.metrics["began"] >= 1008.0 for report in reports) <= 1


class SlowToLoad:
    """Takes its time in every process that it is sent to."""

    def __init__(self, clock: JumpingClock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.clock.jump(self.seconds)


def load_slowly(train: Callable[[hw.Trial], None], clock: JumpingClock, seconds: float) -> Callable[[hw.Trial], None]:
    """Return a function that takes so long to get to a process."""
    slow = SlowToLoad(clock, seconds)

    def train_loaded(trial: hw.Trial) -> None:
        assert slow.seconds == seconds
        train(trial)

    return train_loaded


def test_a_process_that_is_ready_after_the_deadline_does_not_begin_unless_nothing_else_comes_to_a_report() -> None:
    clock = JumpingClock()
    train = load_slowly(timed(clock, epoch_s=1.0, num_epochs=50), clock, seconds=6.0)
    result = run(replace(make_study(train), executor=ProcessExecutor(2)), clock, seconds=10)
    assert sum(bool(trial.history) for trial in result.trials) == 1
    assert result.ended_early == "the time budget of 10 s is used up"


def test_the_time_that_a_process_takes_to_get_ready_is_gone_for_what_it_measures() -> None:
    clock = JumpingClock()
    train = load_slowly(timed(clock, epoch_s=1.0), clock, seconds=12.0)
    study = replace(make_study(train), executor=ProcessExecutor(1, clock=clock), lanes="auto")
    result = run(study, clock, seconds=10)
    assert [profile.measurements for profile in result.profiles] == [()]
    assert [trial.epochs for trial in result.trials][:2] == [1, 0]


def test_every_group_of_a_pack_ends_with_its_next_report() -> None:
    clock = JumpingClock()
    data = TensorDataset(torch.ones(64, 2))

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        loader = trial.prepare_data_loader(data, batch_size=trial.config["batch_size"])
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(50):
            began = clock()
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                clock.jump(0.1)
            trial.report(loss=1.0, began=began)

    space = {"lr": hw.loguniform(1e-3, 0.5), "batch_size": hw.choice([8, 16, 32])}
    study = replace(make_study(train), space=space, packing="batch_size", lanes=4)
    result = run(study, clock, seconds=6)
    began = [report.metrics["began"] for trial in result.trials for report in trial.history]
    assert result.ended_early is not None
    assert max(began) < 1006.0


def stepping(clock: JumpingClock, step_s: float) -> Callable[[hw.Trial], None]:
    """Return a function whose steps take so long."""

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(3, 2)).square().mean().backward()
                clock.jump(step_s)
                optimizer.step()
            trial.report(loss=1.0)

    return train


@pytest.mark.parametrize(("step_s", "sizes"), [(0.5, {1, 2}), (2.0, {1}), (9.0, set())])
def test_measuring_group_sizes_takes_a_part_of_the_time_left_and_goes_by_what_it_saw(
    step_s: float, sizes: set[int]
) -> None:
    clock = JumpingClock()
    lanes = [Lane(number=number, config={"lr": 0.1 / (number + 1)}, seed=0) for number in range(64)]
    setup = TrainingSetup(stepping(clock, step_s), deadline=Deadline.start(20.0, clock))
    profile, ending = profile_lanes(setup, lanes, share=math.inf)
    assert ending is None
    assert clock() <= 1000.0 + BUDGET_SHARE * 20.0 + step_s
    assert profile.reason.endswith("the time budget leaves no time to measure more")
    assert {item.num_lanes for item in profile.measurements} == sizes


def test_where_the_time_is_over_nothing_is_measured() -> None:
    clock = JumpingClock()
    result = run(replace(make_study(stepping(clock, step_s=1.0)), lanes="auto"), clock, seconds=0)
    assert clock() == 1002.0  # the steps of one epoch
    assert [trial.epochs for trial in result.trials][:2] == [1, 0]


class CountOpened(Callback):
    """Counts the trials that were opened."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def on_start(self, lanes: Sequence[Lane]) -> None:
        self.numbers |= {lane.number for lane in lanes}


EVERY_SEARCH = ["random", "tpe", "asha", "hyperband", "bohb", "median", "pbt"]


@pytest.mark.parametrize("search", EVERY_SEARCH)
def test_of_a_billion_trials_only_those_that_may_train_soon_are_opened(search: str) -> None:
    clock, opened = JumpingClock(), CountOpened()
    study = make_study(timed(clock, epoch_s=1.0, num_epochs=3))
    study = replace(study, search=search, max_epochs=3, lanes=8, callbacks=[opened])
    result = run(study, clock, seconds=5, num_trials=10**9)
    assert 0 < len(opened.numbers) <= 1024
    assert len(result.trials) == len(opened.numbers)


def test_a_grid_of_a_trillion_configurations_is_listed_as_far_as_it_trains() -> None:
    clock = JumpingClock()
    space = {f"key{number}": hw.grid(list(range(1, 1001))) for number in range(4)}

    def train(trial: hw.Trial) -> None:
        clock.jump(1.0)
        trial.report(loss=trial.config["key3"])

    result = run(replace(make_study(train), space=space, search="grid"), clock, seconds=3, num_trials=10**12)
    assert len(result.trials) == 1024
    assert [trial.config["key3"] for trial in result.trials[:3]] == [1, 2, 3]


@pytest.mark.parametrize("search", [*EVERY_SEARCH, "halving"])
@pytest.mark.parametrize("num_seeds", [1, 2])
def test_how_many_are_opened_at_a_time_changes_no_result(
    search: str, num_seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = JumpingClock()
    study = make_study(timed(clock, epoch_s=0.0, num_epochs=3))
    study = replace(study, search=search, max_epochs=3, lanes=4, num_seeds=num_seeds)
    at_once = study.run(num_trials=20)
    monkeypatch.setattr("headwater.conduct.study_trials.OPENED_AHEAD", 3)
    in_turns = study.run(num_trials=20)
    assert [trial.config for trial in in_turns.trials] == [trial.config for trial in at_once.trials]
    assert [trial.status for trial in in_turns.trials] == [trial.status for trial in at_once.trials]
    for mine, other in zip(in_turns.trials, at_once.trials, strict=True):
        assert mine.epochs == other.epochs
        assert mine.value("loss") == pytest.approx(other.value("loss"), rel=1e-6)


def test_a_study_in_turns_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.conduct.study_trials.OPENED_AHEAD", 3)
    study = replace(make_study(timed(JumpingClock(), epoch_s=0.0)), executor=ProcessExecutor(2))
    result = study.run(num_trials=10)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 10
