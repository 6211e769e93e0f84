"""By which value trials are compared, how long one may train, and how many are said to be done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import NSGAIISampler
from tests.execute.simulation import list_gpus

import headwater as hw
from headwater.errors import StudyError
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.report import Pulse, Silence
from headwater.search import SHA, OptunaSearch
from headwater.store import open_store
from headwater.trials import Result, Status

CURVES = {"early": [0.5, 0.1, 0.9], "late": [0.9, 0.5, 0.3], "lost": [0.05, float("nan"), 0.0]}


def follow(trial: hw.Trial) -> None:
    for epoch in trial.epochs(3):
        trial.report(loss=CURVES[trial.config["kind"]][epoch])


STUDY = hw.Study(follow, space={"kind": hw.grid(list(CURVES))}, metric="loss", storage=None, lanes=1)


class Pulses(Silence):
    def __init__(self) -> None:
        self.seen: list[Pulse] = []

    def pulse(self, pulse: Pulse) -> None:
        self.seen.append(pulse)


def kinds(result: Result) -> list[str]:
    return [trial.config["kind"] for trial in result.ranked]


@pytest.mark.parametrize(
    ("judge", "ranking", "value"), [("last", ["late", "early"], 0.3), ("best", ["early", "late"], 0.1)]
)
def test_trials_are_compared_by_the_value_that_was_asked_for(
    tmp_path: Path, judge: str, ranking: list[str], value: float
) -> None:
    watcher = Pulses()
    study = replace(STUDY, judge=judge, storage=tmp_path / "a.db")
    result = study.run(watcher=watcher)
    assert kinds(result) == ranking
    assert watcher.seen[-1].best_value == value
    assert f" {value} " in str(result).splitlines()[3]
    assert [report.metrics["loss"] for report in result.trials[0].history] == CURVES["early"]
    assert kinds(study.resume()) == ranking


def test_a_target_is_reached_by_the_best_value() -> None:
    result = replace(STUDY, judge="best", space={"kind": hw.grid(["early", "late"])}).run(target=0.1)
    assert result.trials[0].epochs == 2


def test_a_search_promotes_by_the_best_value() -> None:
    def rise(trial: hw.Trial) -> None:
        for epoch in trial.epochs(9):
            trial.report(loss=trial.config["x"] if epoch == 0 else 1 - trial.config["x"])

    space = {"x": hw.grid([0.1, 0.2, 0.3, 0.4])}
    search = SHA(reduction=4, min_epochs=2)
    study = hw.Study(rise, space=space, metric="loss", storage=None, lanes=1, search=search, max_epochs=8)
    longest = {
        judge: max(replace(study, judge=judge).run().trials, key=lambda one: one.epochs) for judge in ("last", "best")
    }
    assert longest["last"].config["x"] == 0.4
    assert longest["best"].config["x"] == 0.1


@pytest.mark.parametrize("setting", [{"num_seeds": 2}, {"surrogate": 2}])
def test_the_best_value_is_refused_where_nobody_averages_it(setting: dict[str, int]) -> None:
    with pytest.raises(StudyError, match="judge='best' is for trials under one seed and without a surrogate"):
        replace(STUDY, judge="best", **setting)  # type: ignore[arg-type]  # numbers, as each of them is


def test_another_way_of_comparing_is_another_study(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "a.db")
    study.run()
    with pytest.raises(StudyError, match="was recorded with judge 'last'"):
        replace(study, judge="best").resume()


def test_a_trial_that_trains_for_too_long_is_stopped_and_says_so(tmp_path: Path) -> None:
    """Epochs of the slow trial take 2 s, by a clock that jumps; those of the fast one 1 s."""
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: config["seconds"], num_epochs=10)
    executor = SimulatedExecutor(list_gpus(1), lambda config, epoch: {"loss": 1 / epoch}, times)
    space = {"seconds": hw.grid([2.0, 1.0])}
    study = replace(STUDY, space=space, executor=executor, trial_timeout=10, storage=tmp_path / "a.db")
    slow, fast = study.run().trials
    assert (slow.status, slow.epochs) == (Status.STOPPED, 6)
    assert "stopped after 12.0 s of training: a trial has 10 s (trial_timeout)" in slow.notes
    assert (fast.status, fast.epochs) == (Status.COMPLETED, 10)
    with pytest.raises(StudyError, match="trial_timeout is -1"):
        replace(study, trial_timeout=-1)


def test_trials_that_wait_to_be_promoted_count_as_done(tmp_path: Path) -> None:
    watcher = Pulses()
    study = replace(STUDY, space={"kind": hw.grid(["early", "late"]), "x": hw.uniform(0, 1)}, storage=tmp_path / "a.db")
    result = replace(study, search="asha", max_epochs=3).run(num_trials=8, watcher=watcher)
    assert sum(trial.status is Status.PAUSED for trial in result.trials) > 2
    assert [pulse.num_done for pulse in watcher.seen] == sorted(pulse.num_done for pulse in watcher.seen)
    assert watcher.seen[-1].num_done == 8
    assert watcher.seen[-1].share_done == 1.0
    with open_store(tmp_path / "a.db") as store:
        assert store.study().settings["judge"] == "last"


def test_the_front_holds_what_nothing_beats() -> None:
    points = {
        "fast": (0.5, 1.0),
        "good": (0.1, 9.0),
        "same": (0.1, 9.0),
        "worse": (0.6, 2.0),
        "lost": (float("nan"), 0.1),
    }

    def train(trial: hw.Trial) -> None:
        loss, latency = points[trial.config["kind"]]
        trial.report(score=1.0, loss=loss, latency=latency)

    study = hw.Study(train, space={"kind": hw.grid(list(points))}, metric="score", storage=None, lanes=1)
    result = study.run()
    assert [trial.config["kind"] for trial in result.front(loss="min", latency="min")] == ["fast", "good", "same"]
    assert [trial.config["kind"] for trial in result.front(loss="max")] == ["worse"]
    with pytest.raises(StudyError, match="give each metric its mode"):
        result.front(loss="small")
    assert len(result.front()) == 5  # all score alike


def weigh(trial: hw.Trial) -> None:
    x, y = trial.config["x"], trial.config["y"]
    trial.report(loss=x + y, latency=(1 - x) + y)


WEIGHED = hw.Study(
    weigh,
    space={"x": hw.uniform(0, 1), "y": hw.uniform(0, 1)},
    metric=["loss", "latency"],
    search="nsga2",
    storage=None,
    lanes=1,
)


def test_a_search_for_several_metrics_comes_closer_to_the_front_than_chance(tmp_path: Path) -> None:
    """Whatever x is, y = 0 is best; x trades one metric for the other."""
    found = {
        name: replace(WEIGHED, search=search).run(num_trials=200).trials[-50:]
        for name, search in (("nsga2", OptunaSearch(NSGAIISampler(population_size=20, seed=1))), ("random", "random"))
    }
    means = {name: sum(trial.config["y"] for trial in trials) / len(trials) for name, trials in found.items()}
    assert means["nsga2"] < 0.6 * means["random"]


def test_several_metrics_are_recorded_resumed_and_printed(tmp_path: Path) -> None:
    study = replace(WEIGHED, storage=tmp_path / "a.db", name="one")
    cut = study.run(num_trials=20, target=0.3)
    assert len(cut.trials) < 20 or cut.ended_early
    result = study.resume()
    whole = replace(WEIGHED).run(num_trials=20)
    assert [trial.config for trial in result.trials] == [trial.config for trial in whole.trials]
    front = result.front()
    assert len(front) > 1
    assert front == result.front(loss="min", latency="min")
    lines = str(result).splitlines()
    assert lines[1] == f"front of loss, latency: trials {', '.join(str(trial.number) for trial in front)}"
    assert lines[3].split()[:4] == ["rank", "trial", "loss", "latency"]
    with pytest.raises(StudyError, match="further metrics"):
        hw.Study(weigh, space=study.space, metric="loss", search="nsga2", storage=study.storage, lanes=1).resume()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"search": "asha"}, "search 'asha' goes by one metric; for several there are 'nsga2'"),
        ({"judge": "best"}, "several metrics are for judge='last'"),
        ({"surrogate": 2}, "studies without a surrogate"),
        ({"metric": ["loss", "loss"]}, "give several names"),
        ({"metric": ["loss", "latency"], "mode": ["min"]}, "one mode or one for each"),
        ({"metric": ["loss", "latency"], "mode": ["min", "low"]}, "mode of latency is 'low'"),
    ],
)
def test_what_several_metrics_cannot_have_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StudyError, match=told):
        replace(WEIGHED, **settings)
