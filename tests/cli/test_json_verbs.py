"""Every verb that prints a table prints the same as strict JSON, and nothing else, for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.cli.verbs import VERBS

STUDY = """
import headwater as hw

def train(trial):
    if trial.config["lr"] == 0.4:
        raise ValueError("too \\u00e4 high")
    for epoch in trial.epochs(3):
        loss = float("nan") if trial.config["lr"] == 0.3 else trial.config["lr"] / (epoch + 1)
        trial.report(loss=loss, extra=float("inf"))

study = hw.Study(train, space={"lr": hw.grid([0.1, 0.2, 0.3, 0.4])}, metric="loss", lanes=1, executor="inline")
"""
WITHOUT_TABLE = {
    *(
        "dashboard",
        "export",
        "logs",
        "mirror",
        "pause",
        "plot",
        "priority",
        "rename",
        "report",
        "serve",
        "stop",
        "worker",
    ),
}
"""`export` has formats of its own, a dashboard, a figure, a log and a report are looked at; the others print a line."""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def read(*arguments: str, exit_code: int = 0) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == exit_code, result.output

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(result.stdout, parse_constant=refuse)


def test_every_verb_with_a_table_has_the_option() -> None:
    verbs = {verb.name: verb.load() for verb in VERBS if not verb.is_hidden}
    with_json = {name for name, verb in verbs.items() if any("--json" in option.opts for option in verb.params)}
    assert with_json == verbs.keys() - WITHOUT_TABLE


def test_a_run_and_what_goes_on_with_it() -> None:
    found = read("run", "my_study.py", "--trials", "3")
    assert found["study"] == "train-1"
    assert [(trial["rank"], trial["number"], trial["value"]) for trial in found["trials"]] == [
        (1, 0, pytest.approx(0.1 / 3)),
        (2, 1, pytest.approx(0.2 / 3)),
    ]
    assert found["trials"][0]["metrics"]["extra"] is None
    assert found["statuses"] == {"running": 0, "paused": 0, "completed": 2, "stopped": 1, "failed": 0}
    assert (found["ended_early"], found["was_interrupted"], found["storage"]) == (None, False, "headwater.db")
    more = read("resume", "my_study.py", "--trials", "4")
    assert more["num_trials"] == 4
    assert more["statuses"]["failed"] == 1


def test_progress_is_kept_out_of_the_answer() -> None:
    result = invoke("run", "my_study.py", "--json")
    assert "trials" in result.stderr
    assert json.loads(result.stdout)["study"] == "train-1"
    assert invoke("run", "my_study.py", "--json", "--quiet").stderr == ""


def test_a_run_in_which_nothing_was_found_says_so_in_both() -> None:
    result = invoke("run", "my_study.py", "--json", "--search", "no such search")
    assert (result.exit_code, result.stdout) == (2, "")
    Path("bad.py").write_text(STUDY.replace("[0.1, 0.2, 0.3, 0.4]", "[0.4]"))
    found = read("run", "bad.py", exit_code=1)
    assert found["trials"] == []
    assert found["statuses"]["failed"] == 1


def test_the_studies_of_a_record() -> None:
    invoke("run", "my_study.py", "--name", "one")
    invoke("run", "my_study.py", "--name", "two", "--trials", "1")
    one, two = read("ls")["studies"]
    assert (one["study"], two["study"]) == ("one", "two")
    assert one["best"] == {"number": 0, "value": pytest.approx(0.1 / 3)}
    assert (one["num_trials"], one["statuses"]["failed"], two["num_trials"]) == (4, 1, 1)
    assert one["started"] <= two["started"]


def test_a_record_without_a_sound_trial_has_no_best() -> None:
    Path("bad.py").write_text(STUDY.replace("[0.1, 0.2, 0.3, 0.4]", "[0.3]"))
    invoke("run", "bad.py")
    assert read("ls")["studies"][0]["best"] is None
    assert read("show")["best"] is None


def test_a_study() -> None:
    invoke("run", "my_study.py", "--order", "arrival")
    shown = read("show")
    assert (shown["study"], shown["metric"], shown["mode"], shown["seed"]) == ("train-1", "loss", "min", 0)
    assert shown["settings"]["order"] == "arrival"
    assert [row["key"] for row in shown["space"]] == ["lr"]
    assert shown["best"]["number"] == 0
    assert shown["target"] is None
    assert shown["profiles"] == []


def test_what_was_measured_and_noted_of_a_study() -> None:
    Path("measured.py").write_text(STUDY.replace("[0.1, 0.2, 0.3, 0.4]", "[0.1, 0.2, 0.5]").replace("lanes=1, ", ""))
    invoke("run", "measured.py")
    shown = read("show")
    assert shown["profiles"]
    assert {"num_lanes", "reason", "label", "measurements"} <= shown["profiles"][0].keys()
    assert shown["notes"]
    assert all(isinstance(note["trials"], list) for note in shown["notes"])


def test_a_trial_and_its_whole_history() -> None:
    invoke("run", "my_study.py")
    sound, diverged, failed = (read("show", "--trial", number) for number in ("0", "2", "3"))
    assert [report["epoch"] for report in sound["history"]] == [1, 2, 3]
    assert sound["history"][0]["metrics"] == {"loss": 0.1, "extra": None}
    assert (sound["config"], sound["status"], sound["error"]) == ({"lr": 0.1}, "completed", None)
    assert (diverged["value"], diverged["status"]) == (None, "stopped")
    assert failed["error"].rstrip().endswith("ValueError: too ä high")
    assert failed["history"] == []


def test_a_trial_that_is_not_there_prints_no_json() -> None:
    invoke("run", "my_study.py")
    result = invoke("show", "--trial", "9", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no trial 9" in result.stderr


def test_what_the_doctor_found() -> None:
    checks = read("doctor")["checks"]
    assert {"python", "torch", "lanes", "storage"} <= {check["name"] for check in checks}
    assert all(check.keys() == {"level", "name", "text", "cure"} for check in checks)
    assert {check["level"] for check in checks} <= {"ok", "warn"}


def test_a_doctor_who_finds_a_fault_ends_so() -> None:
    checks = read("doctor", "--storage", "/no/such/folder/study.db", exit_code=1)["checks"]
    assert [check["name"] for check in checks if check["level"] == "FAIL"] == ["storage"]
