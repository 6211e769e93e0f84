"""The command: what it prints where, and with which status it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.cli.running import SEARCH_HELP
from headwater.search import SEARCHES
from headwater.train import sample_models

STUDY = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] * (3 - epoch), other=1.0)

study = hw.Study(
    train,
    space={"lr": hw.choice([0.1, 0.2, 0.4]), "opt": {"kind": hw.choice([dict, len, None])}, "constant": 3},
    metric="loss",
    lanes=1,
)
"""
FAILING = """
import headwater as hw

def train(trial):
    raise ValueError("no data in [nowhere]")

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 3
"""
ENDLESS = """
import sys, time
import headwater as hw

def train(trial):
    for epoch in trial.epochs(10**6):
        trial.report(loss=1.0)
        print("reported", flush=True)
        time.sleep(0.01)

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 3
"""
LOADING = """
import itertools
import torch
import headwater as hw

counted = itertools.count()  # a variable that a trial changes would be put back

class Numbers(torch.utils.data.Dataset):
    def __getitem__(self, index):
        next(counted)
        return torch.tensor(index)

    def __len__(self):
        return 40

class Count(hw.Callback):
    def on_result(self, result):
        print(f"{next(counted)} examples loaded")

def train(trial):
    loader = trial.prepare_data_loader(numbers, batch_size=trial.config["batch_size"])
    for _ in trial.epochs(1):
        trial.report(loss=sum(x.sum().item() for x in loader))

numbers = Numbers()
space = {"batch_size": hw.choice([5, 10, 20, 40])}
study = hw.Study(train, space=space, metric="loss", search="grid", lanes=1, callbacks=[Count()])
"""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    (empty_place / "failing.py").write_text(FAILING)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "headwater", *arguments], capture_output=True, text=True, check=False)


# run


def test_run_trains_the_whole_of_a_finite_space_and_shows_what_it_found(place: Path) -> None:
    result = invoke("run", "my_study.py")
    assert result.exit_code == 0
    for part in ("rank", "opt.kind", "9: 9 completed", "headwater.db", "headwater show train-1"):
        assert part in result.stdout
    assert "study train-1: 9 trials" in result.stderr
    assert (place / "headwater.db").exists()


def test_options_take_the_place_of_what_the_study_says(place: Path) -> None:
    result = invoke(
        "run", "my_study.py", "--trials", "2", "--storage", "other.db", "--name", "mine", "--search", "grid"
    )
    assert result.exit_code == 0
    assert "headwater show mine --storage other.db" in result.stdout
    best = invoke("best", "mine", "--json", "--storage", "other.db")
    assert [trial["config"]["lr"] for trial in json.loads(best.stdout)["trials"]] == [0.1, 0.1]
    assert not (place / "headwater.db").exists()


@pytest.mark.parametrize(("packing", "num_loaded"), [("random", 40), ("none", 160), ("None", 160)])
def test_trials_load_their_data_once_or_each_for_itself_as_asked(place: Path, packing: str, num_loaded: int) -> None:
    (place / "loading.py").write_text(LOADING)
    result = invoke("run", "loading.py", "--packing", packing)
    assert result.exit_code == 0
    assert f"{num_loaded} examples loaded" in result.stdout


def test_the_environment_names_the_storage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_STORAGE", str(place / "from_environment.db"))
    assert "--storage" not in invoke("run", "my_study.py", "--trials", "1").stdout
    assert "train-1" in invoke("ls").stdout
    assert [path.name for path in place.glob("*.db")] == ["from_environment.db"]


def test_a_study_in_memory_leaves_nothing(place: Path) -> None:
    result = invoke("run", "my_study.py", "--trials", "1", "--storage", "memory:")
    assert result.exit_code == 0
    assert "in memory only" in result.stdout
    assert list(place.glob("*.db")) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("my_study.py", "--lanes", "many"), ("lanes is 'many'", "'auto' or a whole number")),
        (("my_study.py", "--lanes", "0"), ("lanes is 0", "at least 1")),
        (
            ("my_study.py", "--packing", "tight"),
            ("packing is 'tight'", "'cost', 'knn'", "None"),
        ),
        (("my_study.py", "--packing", "batch_size"), ("needs a key batch_size", "packing='cost'")),
        (("my_study.py", "--search", "guess"), ("no search 'guess'", "'random'", "'grid'")),
        (("my_study.py", "--study", "other"), ("no variable 'other'", "it has study")),
        (("my_study.py", "--storage", "no/such/place.db"), ("no directory", "create it")),
        (("nothing.py",), ("there is no file nothing.py", "my_study.py")),
        ((".",), ("is a directory",)),
    ],
)
def test_what_cannot_be_run_is_one_message_and_status_2(arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert all(part in result.stderr for part in parts)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_space_without_end_needs_a_number_of_trials(place: Path) -> None:
    (place / "failing.py").write_text(FAILING.replace("NUM_TRIALS = 3", ""))
    result = invoke("run", "failing.py")
    assert result.exit_code == 2
    assert all(part in result.stderr for part in ("no end of configurations", "--trials 100", "NUM_TRIALS = 100"))


def test_a_metric_that_is_never_reported_is_an_error(place: Path) -> None:
    (place / "my_study.py").write_text(STUDY.replace('metric="loss"', 'metric="accuracy"'))
    result = invoke("run", "my_study.py")
    assert result.exit_code == 2
    assert "'accuracy'" in result.stderr
    assert "'loss'" in result.stderr


def test_a_study_in_which_every_trial_failed_ends_with_status_1() -> None:
    result = invoke("run", "failing.py")
    assert result.exit_code == 1
    assert "all 3 trials of study 'train-1' failed; trial 0: ValueError: no data in [nowhere] (" in result.stderr
    assert "failing.py, line 5, in train)" in result.stderr
    assert "headwater show train-1 --trial 0" in result.stderr
    assert "3: 3 failed" in result.stdout


def test_an_exception_in_the_file_is_shown_from_there_on(place: Path) -> None:
    (place / "broken.py").write_text("import no_such_module_anywhere\n")
    result = invoke("run", "broken.py")
    assert result.exit_code == 2
    assert "broken.py could not be loaded" in result.stderr
    assert "No module named 'no_such_module_anywhere'" in result.stderr
    assert "headwater/loading.py" not in result.stderr


# ls, show, best


def test_studies_are_listed() -> None:
    invoke("run", "my_study.py", "--trials", "2")
    invoke("run", "failing.py", "--name", "second")
    lines = invoke("ls").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["train-1", "second"]
    assert "none yet" in lines[3]


def test_a_study_is_shown_with_its_space() -> None:
    invoke("run", "my_study.py")
    shown = invoke("show").stdout
    for part in ("train-1", "the smallest loss", "9: 9 completed", "choice([dict, len, None])", "constant"):
        assert part in shown


def test_a_failed_trial_is_shown_with_its_traceback() -> None:
    invoke("run", "failing.py")
    shown = invoke("show", "train-1", "--trial", "1").stdout
    assert "failed" in shown
    assert "Traceback (most recent call last)" in shown
    assert shown.rstrip().endswith("ValueError: no data in [nowhere]")


def test_an_unknown_trial_is_answered_with_those_there_are() -> None:
    invoke("run", "failing.py")
    result = invoke("show", "--trial", "9")
    assert result.exit_code == 2
    assert "no trial 9; it has 0 to 2" in result.stderr


def test_an_unknown_study_is_answered_with_those_there_are() -> None:
    invoke("run", "failing.py")
    result = invoke("best", "train-9")
    assert result.exit_code == 2
    assert "no study named 'train-9'; there are 'train-1'" in result.stderr


def test_the_best_are_shown_with_readable_values() -> None:
    invoke("run", "my_study.py")
    lines = invoke("best", "--count", "3").stdout.splitlines()
    assert {line.split()[5] for line in lines[2:]} == {"dict", "len", "None"}
    assert {float(line.split()[4]) for line in lines[2:]} == {0.1}


def test_the_best_as_json_is_strict() -> None:
    invoke("run", "my_study.py")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    listed = json.loads(invoke("best", "--json").stdout, parse_constant=refuse)
    assert (listed["study"], listed["metric"], listed["mode"], len(listed["trials"])) == ("train-1", "loss", "min", 9)
    assert listed["trials"][0]["config"]["constant"] == 3


@pytest.mark.parametrize("verb", ["ls", "show", "best"])
def test_without_a_record_the_message_says_where_it_was_looked_for(verb: str, place: Path) -> None:
    result = invoke(verb)
    assert result.exit_code == 2
    assert str(place / "headwater.db") in result.stderr
    assert list(place.glob("*.db")) == []


# doctor, version, help


def test_the_doctor_ends_with_status_1_if_something_fails() -> None:
    assert invoke("doctor", "--storage", "no/such/place.db").exit_code == 1


def test_the_doctor_shows_a_line_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_models, "MOST_LANES", 2)
    lines = invoke("doctor", "--measure").stdout.splitlines()
    for name in ("MLP", "CNN", "Transformer"):
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert re.search(r"\d/s .* [12] .*\d/s .*\dx", line)


@pytest.mark.parametrize("verb", ["run", "ls", "show", "best", "doctor"])
def test_every_verb_has_help(verb: str) -> None:
    result = invoke(verb, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


# As separate processes


def test_the_module_can_be_run() -> None:
    assert run_process("--version").stdout.startswith("headwater ")


def test_a_wrong_option_ends_with_status_2() -> None:
    assert run_process("run", "my_study.py", "--trials", "0").returncode == 2


@pytest.mark.parametrize("arguments", [("--help",), ("ls",), ("show",), ("show", "--trial", "0"), ("best",)])
def test_what_only_reads_does_not_import_torch(arguments: tuple[str, ...]) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    script = (
        "import sys\nfrom headwater.cli import main\n"
        "try:\n    main()\nfinally:\n    sys.exit('torch' in sys.modules or 'optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interruption_says_where_the_record_lies(place: Path) -> None:
    (place / "endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "headwater", "run", "endless.py"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "100"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reported\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert "interrupted; go on with headwater resume endless.py --name train-1\n" in told
    assert "Traceback" not in told
    assert "running" in invoke("show").stdout


def test_a_study_that_was_interrupted_goes_on(place: Path) -> None:
    """A second process takes up the record that the first left, and trains what is missing."""
    first = run_process("run", "my_study.py", "--trials", "2")
    assert first.returncode == 0, first.stderr
    second = run_process("resume", "my_study.py", "--trials", "5")
    assert second.returncode == 0, second.stderr
    assert "5 completed" in second.stdout


def test_the_help_lists_every_search() -> None:
    assert sorted(re.findall(r"[a-z0-9-]{2,}", SEARCH_HELP.partition(":")[2])) == sorted(SEARCHES)


def test_resuming_without_a_record_says_what_to_do(place: Path) -> None:
    done = run_process("resume", "my_study.py")
    assert done.returncode == 2
    assert "start a study that writes it" in done.stderr
