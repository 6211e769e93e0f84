"""The verb `bubbles`, and studies that are run by the option of that name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.stalls import LentStage, StallPage

pytestmark = pytest.mark.timeout(600)  # what trains in bubbles gives way to all else on a busy machine

STUDY = """
import os
import headwater as hw

def train(trial):
    trial.report(loss=trial.config["lr"], policy=float(os.sched_getscheduler(0)))

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 2
"""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    return empty_place


@pytest.fixture
def lent(place: Path) -> Iterator[StallPage]:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    page = StallPage(place / "gaps", LentStage(stage=0, num_stages=2, pid=os.getpid(), cores=cores))
    page.open(3 << 30)
    yield page
    page.close()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_stages_that_are_lent_are_listed(lent: StallPage) -> None:
    shown = invoke("bubbles", "gaps")
    assert shown.exit_code == 0
    assert "0 of 2" in shown.stdout
    assert "3 GiB" in shown.stdout
    (row,) = json.loads(invoke("bubbles", "gaps", "--json").stdout)["stages"]
    assert (row["stage"], row["pid"], row["memory_bytes"]) == (0, os.getpid(), 3 << 30)


def test_where_nothing_is_lent_one_line_says_what_to_do() -> None:
    result = invoke("bubbles", "gaps")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "no pipeline lends its bubbles in gaps; start the training with hw.lend_bubbles(schedule, 'gaps')" in line


def test_a_study_runs_in_bubbles(lent: StallPage) -> None:
    assert invoke("run", "my_study.py", "--bubbles", "gaps", "--quiet").exit_code == 0
    trials = json.loads(invoke("best", "--json").stdout)["trials"]
    assert [trial["metrics"]["policy"] for trial in trials] == [float(os.SCHED_IDLE)] * 2


@pytest.mark.parametrize("other", [("--executor", "inline"), ("--cluster", "local")])
def test_bubbles_and_another_place_are_refused(other: tuple[str, str]) -> None:
    result = invoke("run", "my_study.py", "--bubbles", "gaps", *other)
    assert result.exit_code == 2
    assert f"--bubbles and {other[0]} {other[1]} both say where to train" in result.stderr
