"""Studies with constraints: what they find, learn, record and show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import NSGAIISampler
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import StudyError
from headwater.search import ASHA, OptunaSearch


def weigh(trial: hw.Trial) -> None:
    """Report the less loss the larger x is, while what is allowed ends at half of it."""
    x, y = trial.config["x"], trial.config["y"]
    trial.report(loss=2 - x + y, latency=20 * x)


STUDY = hw.Study(
    weigh,
    space={"x": hw.uniform(0, 1), "y": hw.uniform(0, 1)},
    metric="loss",
    constraints=["latency <= 10"],
    storage=None,
    lanes=1,
)


def share_kept(result: hw.Result, last: int) -> float:
    return sum(trial.metrics["latency"] <= 10 for trial in result.trials[-last:]) / last


@pytest.mark.parametrize("settings", [{}, {"metric": ["loss", "latency"]}, {"lanes": 4}, {"num_seeds": 2}])
def test_the_best_keeps_to_the_constraints(settings: dict[str, Any]) -> None:
    result = replace(STUDY, **settings).run(num_trials=20)
    kept = [trial for trial in result.trials if trial.metrics["latency"] <= 10]
    assert 0 < len(kept) < 20, "some do and some do not"
    assert result.best == min(kept, key=lambda trial: trial.metrics["loss"])
    assert min(result.trials, key=lambda trial: trial.metrics["loss"]) not in kept
    assert {trial.number for trial in result.front()} <= {trial.number for trial in kept}


@pytest.mark.parametrize("search", ["nsga2", "tpe"])
@pytest.mark.parametrize("metric", ["loss", ["loss", "latency"]])
def test_searches_learn_to_keep_to_them(search: str, metric: Any) -> None:
    """By the loss alone they go to x = 1, where all is forbidden."""
    constrained = replace(STUDY, search=search, metric=metric).run(num_trials=200)
    free = replace(STUDY, search=search, metric=metric, constraints=()).run(num_trials=200)
    assert share_kept(constrained, 50) > 0.5
    assert share_kept(constrained, 50) > share_kept(free, 50) + (0.2 if metric == "loss" else 0.0)


def test_a_gaussian_process_goes_to_the_best_of_what_is_allowed() -> None:
    """That is at the edge, so that half of its last trials may be a little over it."""
    constrained = replace(STUDY, search=OptunaSearch("gp", concurrency=4)).run(num_trials=28)
    assert 1.5 <= constrained.best.value("loss") < 1.55
    assert all(trial.config["x"] < 0.9 for trial in constrained.trials[-4:]), "without constraints, it ends at 1"


@pytest.mark.parametrize("search", ["nsga2", "tpe"])
def test_a_resumed_study_goes_on_as_one_that_was_not_cut(tmp_path: Path, search: str) -> None:
    study = replace(STUDY, search=search, storage=tmp_path / "a.db", name="one")
    study.run(num_trials=70)
    result = study.resume(num_trials=90)
    whole = replace(STUDY, search=search).run(num_trials=90)
    assert [trial.config for trial in result.trials] == [trial.config for trial in whole.trials]
    assert result.constraints == whole.constraints
    with pytest.raises(StudyError, match=r"was recorded with constraints \['latency <= 10'\], but this one has \[\]"):
        replace(study, constraints=()).resume()


def test_trials_that_do_not_report_a_bounded_metric_keep_none(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        trial.report(loss=trial.config["x"], **({"latency": 5.0} if trial.number == 3 else {}))

    result = replace(STUDY, train=train, search="tpe").run(num_trials=15)
    assert result.best.number == 3
    assert [trial.number for trial in result.feasible] == [3]


def test_the_target_is_reached_within_the_constraints_only() -> None:
    result = replace(STUDY).run(num_trials=60, target=1.9)
    assert result.ended_early is not None
    assert result.best.metrics["latency"] <= 10
    assert result.best.metrics["loss"] <= 1.9


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"constraints": ["latency < 10"]}, "a constraint is 'latency < 10'; write it as"),
        ({"constraints": 10}, "constraints is 10; it must be a list"),
        ({"search": "asha"}, "search 'asha' goes by the metric alone; for constraints there are 'nsga2', 'tpe', 'gp'"),
        ({"search": ASHA()}, "search 'ASHA' goes by the metric alone"),
        ({"search": NSGAIISampler()}, "search 'NSGAIISampler' goes by the metric alone"),
        ({"search": OptunaSearch("cmaes")}, "search 'cmaes' goes by the metric alone"),
        ({"judge": "best"}, "constraints are for judge='last'"),
        ({"surrogate": 2}, "studies without a surrogate"),
    ],
)
def test_what_constraints_cannot_have_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StudyError, match=told) as error:
        replace(STUDY, **settings)
    assert "\n" not in str(error.value)


SCRIPT = """
import headwater as hw

def train(trial):
    trial.report(loss=2 - trial.config["x"], latency=20 * trial.config["x"])

study = hw.Study(train, space={"x": hw.choice([0.1, 0.4, 0.9])}, metric="loss", search="grid")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.py").write_text(SCRIPT)
    return tmp_path


def call(*args: str) -> Any:
    return CliRunner().invoke(app, [*args], env={"COLUMNS": "160"})


def test_the_command_takes_records_and_shows_them(place: Path) -> None:
    done = call("run", "study.py", "--constraint", "latency <= 10", "--constraint", "latency>=1", "--quiet")
    assert done.exit_code == 0, done.output
    assert "latency <= 10: kept by 2 of 3 trials" in done.stdout
    shown = call("show")
    assert "latency >= 1: kept by 3 of 3 trials" in shown.stdout
    rows = [line.split() for line in call("best").stdout.splitlines()]
    assert [row[-3] for row in rows if row and row[0].isdecimal()] == ["yes", "yes", "no"]


def test_programs_are_told_which_trials_keep_to_them(place: Path) -> None:
    ran = json.loads(call("run", "study.py", "--constraint", "latency <= 10", "--json").stdout)
    assert ran["constraints"] == ["latency <= 10"]
    assert [trial["feasible"] for trial in ran["trials"]] == [True, True, False]
    assert ran["trials"][0]["metrics"]["latency"] == 8
    shown = json.loads(call("show", "--json").stdout)
    assert shown["constraints"] == ["latency <= 10"]
    assert shown["best"]["value"] == pytest.approx(1.6)


def test_a_study_that_goes_on_has_the_constraints_of_its_record(place: Path) -> None:
    assert call("run", "study.py", "--constraint", "latency <= 10", "--trials", "2", "--quiet").exit_code == 0
    done = call("resume", "study.py", "--trials", "3", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["constraints"] == ["latency <= 10"]


def test_the_command_refuses_what_is_no_constraint_in_one_line(place: Path) -> None:
    done = call("run", "study.py", "--constraint", "latency < 10")
    assert done.exit_code != 0
    assert "a constraint is 'latency < 10'; write it as" in " ".join(done.stderr.split())
