"""Options of the command: what they do, what they refuse, and that the page on the command has them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.cli.verbs import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
SHOWN = {verb.name: verb for verb in VERBS if not verb.is_hidden}
SHARED = {"--storage", "--server", "--token", "--help", "--version"}
"""What the page explains once, for all verbs."""
STUDY = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(20):
        trial.report(loss=trial.config["lr"] / (epoch + 1))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 6
"""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    return empty_place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def epochs_of_trials() -> list[int]:
    listed = json.loads(invoke("best", "--json", "--count", "100").stdout)["trials"]
    return [trial["epochs"] for trial in sorted(listed, key=lambda trial: int(trial["number"]))]


# run


def test_max_epochs_takes_the_place_of_what_the_study_says(place: Path) -> None:
    (place / "my_study.py").write_text(STUDY.replace("lanes=1", "lanes=1, max_epochs=2"))
    assert invoke("run", "my_study.py", "--max-epochs", "5").exit_code == 0
    assert epochs_of_trials() == [5] * 6


@pytest.mark.parametrize("verb", ["run", "resume"])
@pytest.mark.parametrize("number", ["0", "-3"])
def test_fewer_epochs_than_one_are_refused(verb: str, number: str) -> None:
    result = invoke(verb, "my_study.py", "--max-epochs", number)
    assert result.exit_code == 2
    assert "Invalid value for '--max-epochs'" in result.stderr


def test_a_target_ends_a_run_and_what_is_left_goes_on_to_another() -> None:
    ended = invoke("run", "my_study.py", "--target", "0.9")
    assert ended.exit_code == 0
    assert "reached the target of 0.9" in ended.stderr
    first = sum(epochs_of_trials())
    assert invoke("resume", "my_study.py", "--target", "0.05").exit_code == 0
    assert first < sum(epochs_of_trials()) < 6 * 20


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_quiet_run_shows_what_it_found_and_nothing_else(verb: str) -> None:
    if verb == "resume":
        invoke("run", "my_study.py", "--trials", "1")
    result = invoke(verb, "my_study.py", "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "completed" in result.stdout


# resume


def test_a_resumed_study_keeps_the_limit_that_it_ran_with() -> None:
    invoke("run", "my_study.py", "--trials", "2", "--max-epochs", "3")
    assert invoke("resume", "my_study.py", "--trials", "4").exit_code == 0
    assert epochs_of_trials() == [3] * 4
    assert invoke("resume", "my_study.py", "--trials", "5", "--max-epochs", "3").exit_code == 0
    assert epochs_of_trials() == [3] * 5


@pytest.mark.parametrize(("limit", "shown"), [(("--max-epochs", "3"), "ran with 3"), ((), "ran with no limit")])
def test_a_resumed_study_refuses_another_limit(limit: tuple[str, ...], shown: str) -> None:
    invoke("run", "my_study.py", "--trials", "1", *limit)
    result = invoke("resume", "my_study.py", "--trials", "2", "--max-epochs", "7")
    assert result.exit_code == 2
    for part in ("--max-epochs is 7", shown, "headwater run --max-epochs 7"):
        assert part in result.stderr
    assert len(epochs_of_trials()) == 1


def test_a_resumed_study_has_a_time_budget_of_its_own() -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke("resume", "my_study.py", "--trials", "6", "--time-budget", "0")
    assert result.exit_code == 0
    assert "the time budget of 0 s is used up" in result.stderr
    assert sum(epochs_of_trials()) < 6 * 20


def recorded_order() -> str:
    order = json.loads(invoke("show", "--json").stdout)["settings"]["order"]
    assert isinstance(order, str)
    return order


def test_a_resumed_study_keeps_the_order_that_it_ran_with() -> None:
    invoke("run", "my_study.py", "--trials", "1", "--order", "arrival")
    assert invoke("resume", "my_study.py", "--trials", "2").exit_code == 0
    assert invoke("resume", "my_study.py", "--trials", "3", "--order", "arrival").exit_code == 0
    assert (recorded_order(), len(epochs_of_trials())) == ("arrival", 3)


@pytest.mark.parametrize(("ran_with", "asked_for"), [("arrival", "virtual"), ("virtual", "arrival")])
def test_a_resumed_study_refuses_another_order(ran_with: str, asked_for: str) -> None:
    invoke("run", "my_study.py", "--trials", "1", "--order", ran_with)
    result = invoke("resume", "my_study.py", "--trials", "2", "--order", asked_for)
    assert result.exit_code == 2
    for part in (f"--order is {asked_for}", f"ran with {ran_with}", f"headwater run --order {asked_for}"):
        assert part in result.stderr
    assert len(epochs_of_trials()) == 1


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_an_order_that_there_is_not_is_refused(verb: str) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke(verb, "my_study.py", "--trials", "2", "--order", "random")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == ["error: order is 'random'; it must be one of 'virtual', 'arrival'"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [(("--lanes", "many"), "lanes is 'many'"), (("--packing", "tight"), "packing is 'tight'")],
)
def test_a_resumed_study_is_grouped_as_asked(arguments: tuple[str, ...], part: str) -> None:
    invoke("run", "my_study.py", "--trials", "1")
    assert part in invoke("resume", "my_study.py", *arguments).stderr
    result = invoke("resume", "my_study.py", "--trials", "3", "--lanes", "2", "--packing", "none")
    assert result.exit_code == 0
    assert "3: 3 completed" in result.stdout


# show


def test_every_epoch_of_a_trial_is_shown_on_demand() -> None:
    invoke("run", "my_study.py", "--trials", "1")
    assert "left out: 8 of 20 epochs; see them with --all-epochs" in invoke("show", "--trial", "0").stdout
    shown = invoke("show", "--trial", "0", "--all-epochs").stdout
    assert "left out" not in shown
    assert sum(bool(re.match(r" +\d+ ", line)) for line in shown.splitlines()) == 20


def test_every_epoch_needs_a_trial() -> None:
    invoke("run", "my_study.py", "--trials", "1")
    result = invoke("show", "--all-epochs")
    assert result.exit_code == 2
    assert "say which with --trial N" in result.stderr


# docs/cli.md


@pytest.mark.parametrize("verb", sorted(SHOWN))
def test_the_page_has_every_option_of_a_verb_and_no_other(verb: str) -> None:
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S))
    options = {name for option in SHOWN[verb].load().params for name in option.opts if name[:2] == "--"}
    rows = [line for line in sections[verb].splitlines() if line.startswith("| `--")]
    explained = {name for line in rows for name in re.findall(r"`(--[a-z-]+)", line.split(" | ")[0])}
    named = {name for name in re.findall(r"--[a-z][a-z-]+", sections[verb]) if f"`{name}" in sections[verb]}
    assert options - SHARED <= named
    assert explained <= options


def test_the_page_has_what_all_verbs_share() -> None:
    head = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    own = {name for option in get_command(app).params for name in option.opts if name[:2] == "--"}
    assert own <= SHARED
    assert all(name in head for name in SHARED)
