"""The verbs that hand a record on: what they print where, and with which status they end."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from tests.scripts import ENDLESS
from typer.testing import CliRunner, Result

from headwater.cli import app

STUDY = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] * (3 - epoch))

space = {"lr": hw.choice([0.1, 0.2, 0.4]), "kind": hw.choice([dict, len])}
study = hw.Study(train, space=space, metric="loss", lanes=1)
"""
WIDE = """
import torch
import headwater as hw

def train(trial):
    model = trial.prepare_model(torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Linear(32, 2)))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    is_target = model(torch.ones(1, 4)) is not None and model[0].out_features == 32
    for epoch in trial.epochs(10**9 if is_target else 2):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        trial.report(loss=1.0)
        if is_target and epoch == 0:
            print("reported", flush=True)

surrogate = hw.Surrogate(scale=2, num_checked=0, eager=False)
study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1, surrogate=surrogate)
NUM_TRIALS = 2
"""
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    (empty_place / "endless.py").write_text(ENDLESS)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@contextmanager
def start(file: str) -> Iterator[subprocess.Popen[str]]:
    """Run a study in another process, and wait until it says that it has reported."""
    command = [sys.executable, "-m", "headwater", "run", file]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "100"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reported\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.communicate()


@pytest.fixture
def endless(place: Path) -> Iterator[subprocess.Popen[str]]:
    with start("endless.py") as process:
        yield process


# export


def test_a_table_goes_to_the_terminal() -> None:
    invoke("run", "my_study.py")
    result = invoke("export")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert result.exit_code == 0
    assert [row["number"] for row in rows] == [str(number) for number in range(6)]
    assert {row["config.kind"] for row in rows} == {"dict", "len"}


def test_reports_as_json() -> None:
    invoke("run", "my_study.py", "--trials", "2")
    rows = json.loads(invoke("export", "train-1", "--history", "--format", "json").stdout)
    assert [(row["number"], row["epoch"]) for row in rows] == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.parquet"])
def test_a_file_says_by_its_name_in_which_format(name: str, place: Path) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    invoke("run", "my_study.py", "--trials", "2")
    result = invoke("export", "--output", name)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"wrote 2 rows to {name}" in result.stderr
    assert (place / name).read_bytes()[:4] == {"t.csv": b"numb", "t.json": b'[\n{"', "t.parquet": b"PAR1"}[name]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--format", "xlsx"), "--format is 'xlsx'; give --format with one of csv, json, parquet"),
        (("--output", "table"), "'table' does not say in which format"),
        (("--format", "parquet"), "--output trials.parquet"),
        (("--output", "no/such/place.csv"), "cannot be written"),
        (("nothing",), "no study named 'nothing'; there are 'train-1'"),
    ],
)
def test_what_cannot_be_exported_is_one_message_and_status_2(arguments: tuple[str, ...], part: str) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke("export", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr


# mirror


def test_a_study_is_copied_into_an_optuna_storage() -> None:
    invoke("run", "my_study.py")
    result = invoke("mirror", "--to", "copy.db")
    assert result.exit_code == 0, result.stderr
    assert "6 trials; look at it with optuna-dashboard sqlite:///copy.db" in result.stdout
    best = json.loads(invoke("best", "--json").stdout)["trials"][0]
    copy = optuna.load_study(study_name="train-1", storage="sqlite:///copy.db")
    assert copy.best_trial.number == best["number"]
    assert copy.best_params == best["config"]


def test_the_record_itself_is_no_place_for_a_copy() -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke("mirror", "--to", "headwater.db")
    assert result.exit_code == 2
    assert "a record of Headwater's own" in result.stderr
    assert invoke("show").exit_code == 0


# stop


def test_a_study_in_another_process_ends_after_its_next_report(endless: subprocess.Popen[str]) -> None:
    asked = invoke("stop")
    assert asked.exit_code == 0, asked.stderr
    assert f"process {endless.pid}" in asked.stdout
    _, told = endless.communicate(timeout=DEADLINE_S)
    assert endless.returncode == 130
    assert "asked to stop; what was under way can be resumed" in told
    assert "go on with headwater resume endless.py" in told
    assert "Traceback" not in told
    assert "running" in invoke("show").stdout
    again = invoke("stop")
    assert again.exit_code == 2
    assert "study 'train-1' is not running" in again.stderr


def test_a_study_is_asked_to_stop_in_whatever_stage_it_is(place: Path) -> None:
    (place / "wide.py").write_text(WIDE)
    with start("wide.py") as process:
        asked = invoke("stop", "train-1")
        assert asked.exit_code == 0, asked.stderr
        assert "asked study train-1.target-" in asked.stdout
        _, told = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert "go on with headwater resume wide.py" in told


def test_a_study_that_still_runs_is_not_resumed_by_another_process(endless: subprocess.Popen[str]) -> None:
    result = invoke("resume", "endless.py")
    assert result.exit_code == 2
    assert f"study 'train-1' is still running, in process {endless.pid} on " in result.stderr


def test_a_killed_process_that_nobody_has_waited_for_does_not_run_a_study(endless: subprocess.Popen[str]) -> None:
    endless.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, endless.pid, os.WEXITED | os.WNOWAIT)
    assert "was killed" in invoke("stop").stderr


def test_a_study_that_was_killed_is_not_running(endless: subprocess.Popen[str]) -> None:
    endless.send_signal(signal.SIGKILL)
    endless.communicate(timeout=DEADLINE_S)
    result = invoke("stop")
    assert result.exit_code == 2
    assert f"process {endless.pid}, which ran it, was killed" in result.stderr
    assert "headwater resume" in result.stderr


def test_a_study_that_has_ended_is_not_running() -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke("stop", "train-1")
    assert result.exit_code == 2
    assert "is not running, so there is nothing to stop; look at it with headwater show train-1" in result.stderr


@pytest.mark.parametrize("verb", ["export", "mirror", "stop"])
def test_without_a_record_nothing_is_made(verb: str, place: Path) -> None:
    result = invoke(verb)
    assert result.exit_code == 2
    assert str(place / "headwater.db") in result.stderr
    assert list(place.glob("*.db")) == []


@pytest.mark.parametrize("verb", ["export", "mirror", "stop"])
def test_every_verb_has_help(verb: str) -> None:
    assert "Usage" in invoke(verb, "--help").stdout


@pytest.mark.parametrize("arguments", [("export",), ("stop",)])
def test_what_only_reads_does_not_import_torch(arguments: tuple[str, ...]) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    script = (
        "import sys\nfrom headwater.cli import main\n"
        "try:\n    main()\nfinally:\n    sys.exit('torch' in sys.modules or 'optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# show --timeline


@pytest.fixture
def recorded(place: Path) -> Path:
    assert invoke("run", "my_study.py", "--quiet").exit_code == 0
    return place


@pytest.mark.usefixtures("recorded")
def test_a_timeline_shows_what_each_device_did() -> None:
    result = invoke("show", "--timeline")
    assert result.exit_code == 0
    head, legend, line = result.stdout.splitlines()
    assert head.startswith("study train-1: 1 device for ")
    assert legend == "█ lanes  ▓ pack  ▚ ranks  ▒ measurement  · idle"
    assert line.startswith("cpu:0 ")
    assert " busy, idle " in line


@pytest.mark.usefixtures("recorded")
def test_a_timeline_is_json_for_programs() -> None:
    timeline = json.loads(invoke("show", "train-1", "--timeline", "--json").stdout)
    (device,) = timeline["devices"]
    spans = [span for span in device["spans"] if span["purpose"] == "lanes"]
    assert sorted(span["trials"] for span in spans) == [[number] for number in range(6)]
    assert all(0 <= span["begin_s"] < span["end_s"] <= timeline["end_s"] for span in spans)
    busy_s = sum(span["end_s"] - span["begin_s"] for span in device["spans"])
    assert device["busy_share"] == timeline["busy_share"] == pytest.approx(busy_s / timeline["end_s"])


def test_a_timeline_is_drawn_into_a_file(recorded: Path) -> None:
    result = invoke("show", "--timeline", "-o", "bars.svg")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "to bars.svg" in result.stderr
    assert (recorded / "bars.svg").read_text().count("<title>train-1, lanes: trials ") == 6


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--timeline", "-o", "bars.png"], "a timeline is drawn as SVG, so name it bars.svg"),
        (["--output", "x.svg"], "--output is for the timeline of a study; ask for it with --timeline"),
        (["-o", "bars.svg"], "ask for it with --timeline"),
        (["nobody", "--timeline"], "holds no study named 'nobody'"),
    ],
)
def test_what_cannot_be_shown_as_a_timeline_is_refused(options: list[str], message: str) -> None:
    result = invoke("show", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_record_without_spans_says_why(place: Path) -> None:
    connection = sqlite3.connect(place / "headwater.db")
    connection.executescript((Path(__file__).parents[1] / "store" / "version_1.sql").read_text())
    connection.close()
    result = invoke("show", "--timeline")
    assert result.exit_code == 2
    assert "the record of study 'train-1' has no spans" in result.stderr
    assert "headwater show train-1" in result.stderr
