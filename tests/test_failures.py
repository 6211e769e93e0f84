"""Failures are loud: at once where the first trial fails, and with an error where all of them do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.conduct.first_failures import MOST_ALIKE
from headwater.errors import AllTrialsFailedError, NameTakenError, StudyError
from headwater.report import Silence
from headwater.store import open_store
from headwater.trials import Status

SPACE = {"lr": hw.uniform(0, 1)}
FAILING = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(3):
        trial.report(loss=undefined)

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage="study.db", name="once")
NUM_TRIALS = 8
if __name__ == "__main__":
    study.run(num_trials=NUM_TRIALS)
"""
SOUND = FAILING.replace("undefined", "1.0")
WRONG_METRIC = FAILING.replace("loss=undefined", "accuracy=1.0")


class Lines(Silence):
    """A watcher that keeps every line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, text: str) -> None:
        self.lines.append(text)


def raise_always(trial: hw.Trial) -> None:
    raise ValueError("no data")


def make_study(train: Callable[[hw.Trial], object], **settings: Any) -> hw.Study:  # Any: settings of a study
    return replace(hw.Study(train, space=SPACE, metric="loss", storage=None, executor="inline", lanes=1), **settings)


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("settings", [{}, {"lanes": 3}, {"lanes": "auto"}, {"executor": "processes", "devices": 1}])
def test_a_study_whose_trials_all_fail_raises_with_its_result(settings: dict[str, object]) -> None:
    with pytest.raises(
        AllTrialsFailedError, match=r"all 3 trials.*trial 0: ValueError: no data \(.*test_failures.py, "
    ) as told:
        make_study(raise_always, **settings).run(num_trials=3)
    assert [trial.status for trial in told.value.result.trials] == [Status.FAILED] * 3
    assert told.value.__cause__ is None
    assert f"line {raise_always.__code__.co_firstlineno + 1}, in raise_always" in str(told.value)


def test_a_study_in_which_one_trial_is_sound_returns() -> None:
    def train(trial: hw.Trial) -> float:
        if trial.config["lr"] < 0.9:
            raise ValueError("too low")
        return 1.0

    study = make_study(train, points=[{"lr": 0.1}, {"lr": 0.95}])
    assert [trial.status for trial in study.run(num_trials=2).trials] == [Status.FAILED, Status.COMPLETED]


def test_the_first_failure_is_shown_once_with_its_file_and_line() -> None:
    def train(trial: hw.Trial) -> float:
        if trial.config["lr"] < 0.9:
            raise ValueError("too low")
        return 1.0

    watcher = Lines()
    points = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.95}]
    make_study(train, points=points).run(num_trials=3, watcher=watcher)
    (line,) = [line for line in watcher.lines if "failed" in line]
    assert line.startswith(f"trial 0 failed: ValueError: too low ({__file__}, line ")


@pytest.mark.parametrize("lanes", [1, 8])
def test_identical_failures_at_the_start_end_the_run(lanes: int, tmp_path: Path) -> None:
    study = make_study(raise_always, lanes=lanes, storage=tmp_path / "study.db", name="study")
    with pytest.raises(AllTrialsFailedError) as told:
        study.run(num_trials=100)
    result = told.value.result
    assert sum(trial.status is Status.FAILED for trial in result.trials) == MOST_ALIKE
    assert result.ended_early is not None
    assert "the first 5 trials failed in the same way: ValueError: no data" in result.ended_early
    assert not result.was_interrupted
    with open_store(tmp_path / "study.db") as store:
        info = store.study("study")
        assert sum(trial.status is Status.FAILED for trial in store.trials(info.id)) == MOST_ALIKE


def test_a_run_that_failures_have_ended_goes_on_when_the_cause_is_gone(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> float:
        return float(trial.config["lr"])

    study = make_study(raise_always, storage=tmp_path / "study.db", name="study")
    with pytest.raises(AllTrialsFailedError):
        study.run(num_trials=8)
    assert len(replace(study, train=train).retry().ranked) == 8


def test_failures_with_unlike_messages_do_not_end_the_run() -> None:
    def train(trial: hw.Trial) -> None:
        raise ValueError(trial.config["lr"])

    with pytest.raises(AllTrialsFailedError) as told:
        make_study(train).run(num_trials=8)
    assert len(told.value.result.trials) == 8
    assert told.value.result.ended_early is None


def test_failures_of_an_impossible_choice_do_not_end_a_run_whose_other_trials_are_sound() -> None:
    def train(trial: hw.Trial) -> None:
        if trial.config["kind"] == "impossible":
            raise ValueError("no such kind")
        for _ in trial.epochs(2):
            trial.report(loss=1.0)

    kinds = ["impossible"] * 7 + ["possible"]
    study = make_study(
        train, space={**SPACE, "kind": hw.choice(["possible", "impossible"])}, points=[{"kind": one} for one in kinds]
    )
    for lanes in (1, 8):
        result = replace(study, lanes=lanes).run(num_trials=8)
        assert {trial.config["kind"]: trial.status for trial in result.trials} == {
            "possible": Status.COMPLETED,
            "impossible": Status.FAILED,
        }


def test_failures_of_the_first_cells_of_a_grid_do_not_end_a_run_whose_other_cells_are_sound() -> None:
    def train(trial: hw.Trial) -> float:
        if trial.config["kind"] == "impossible":
            raise ValueError("no such kind")
        return 1.0

    space = {"kind": hw.grid(["impossible", "possible"]), "lr": hw.grid([0.1 * number for number in range(1, 7)])}
    result = make_study(train, space=space, search="grid").run()
    assert len(result.ranked) == 6


def test_identical_failures_of_every_choice_end_the_run() -> None:
    study = make_study(raise_always, space={**SPACE, "kind": hw.choice(["a", "b"])})
    with pytest.raises(AllTrialsFailedError) as told:
        study.run(num_trials=40)
    failed = [trial for trial in told.value.result.trials if trial.status is Status.FAILED]
    assert {trial.config["kind"] for trial in failed} == {"a", "b"}
    assert len(failed) < 40


def test_studies_that_run_together_raise_where_one_fails_whole_and_hand_over_the_others() -> None:
    def train(trial: hw.Trial) -> float:
        return 1.0

    studies = [make_study(train), make_study(raise_always)]
    with pytest.raises(AllTrialsFailedError, match="no data") as told:
        hw.run_together(studies, num_trials=2)
    assert [len(result.ranked) for result in told.value.results] == [2, 0]
    assert told.value.result is told.value.results[1]


def test_a_surrogate_search_whose_trials_all_fail_is_kept_in_the_record(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        import torch

        trial.prepare_model(torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)))
        raise ValueError("no data")

    study = make_study(train, storage=tmp_path / "study.db", name="study", surrogate=2)
    with pytest.raises(AllTrialsFailedError, match="no data"):
        study.run(num_trials=2)
    with open_store(tmp_path / "study.db") as store:
        assert "study" in [info.name for info in store.studies()]


def test_the_command_shows_the_failure_and_ends_with_status_1(empty_place: Path) -> None:
    (empty_place / "failing.py").write_text(FAILING)
    ended = CliRunner().invoke(app, ["run", "failing.py"])
    assert ended.exit_code == 1
    place = f"{empty_place / 'failing.py'}, line 6, in train"
    assert f"NameError: name 'undefined' is not defined ({place})" in ended.stderr.replace("\n", "")
    assert "headwater show once --storage study.db --trial 0" in ended.stderr.replace("\n", " ")


def test_a_script_whose_trials_all_fail_ends_with_status_1_and_a_short_traceback(tmp_path: Path) -> None:
    ended = run_script(tmp_path, FAILING)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.splitlines()[-1].startswith(
        "headwater.errors.AllTrialsFailedError: all 5 trials of study 'once'"
    )


def test_a_script_that_runs_twice_is_told_how_to_go_on(tmp_path: Path) -> None:
    assert run_script(tmp_path, SOUND).returncode == 0
    again = run_script(tmp_path, SOUND)
    assert again.returncode == 1
    assert "sql" not in again.stderr.lower().replace("sqlite", "")
    assert len(again.stderr.splitlines()) <= 12
    last = again.stderr.splitlines()[-1]
    for part in (
        "NameTakenError",
        "'once'",
        "resume='auto'",
        "another name",
        "headwater rm once --storage ",
        "study.db",
    ):
        assert part in last


def test_a_command_that_runs_twice_is_told_how_to_go_on(empty_place: Path) -> None:
    (empty_place / "sound.py").write_text(SOUND)
    assert CliRunner().invoke(app, ["run", "sound.py"]).exit_code == 0
    again = CliRunner().invoke(app, ["run", "sound.py"])
    assert again.exit_code == 2
    assert "--resume auto" in again.stderr
    assert CliRunner().invoke(app, ["run", "sound.py", "--resume", "auto"]).exit_code == 0


def test_a_taken_name_has_no_cause_from_the_database(tmp_path: Path) -> None:
    study = make_study(lambda trial: 1.0, storage=tmp_path / "study.db", name="once")
    study.run(num_trials=1)
    with pytest.raises(NameTakenError) as told:
        study.run(num_trials=1)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


@pytest.mark.parametrize(
    ("train", "told"),
    [
        (lambda trial: trial.report(accuracy=1.0, f1=0.5), "'loss', but .* reported only 'accuracy', 'f1' at epoch 1"),
        (lambda trial: {"accuracy": 1.0}, "'loss', but .* reported only 'accuracy' at epoch 1"),
        (lambda trial: None, r"without a report; call trial.report\(loss=\.\.\.\)"),
        (lambda trial: {}, r"without a report; call trial.report\(loss=\.\.\.\)"),
    ],
)
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_metric_that_is_never_reported_is_one_message(
    train: Callable[[hw.Trial], object], told: str, lanes: int, tmp_path: Path
) -> None:
    study = make_study(train, lanes=lanes, storage=tmp_path / "study.db")
    with pytest.raises(StudyError, match=told) as refused:
        study.run(num_trials=3)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_metric_that_is_never_reported_is_told_in_a_few_lines(tmp_path: Path) -> None:
    ended = run_script(tmp_path, WRONG_METRIC)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert "reported only 'accuracy'" in ended.stderr.splitlines()[-1]


def test_a_missing_metric_after_a_failure_is_told_without_an_error_of_the_database(tmp_path: Path) -> None:
    """The spans of the failed trial refer to the study, which could not be taken out of the record because of them."""

    def train(trial: hw.Trial) -> None:
        if trial.config["lr"] < 0.5:
            raise ValueError("too low")
        trial.report(accuracy=1.0)

    study = make_study(train, points=[{"lr": 0.1}, {"lr": 0.9}], storage=tmp_path / "study.db")
    with pytest.raises(StudyError, match="reported only 'accuracy'"):
        study.run(num_trials=2)
    with open_store(tmp_path / "study.db") as store:
        assert store.studies() == []
