"""Options by which a study trains on jobs of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app

STUDY = """
import headwater as hw

def train(trial):
    trial.report(loss=trial.config["lr"])

study = hw.Study(train, space={"lr": hw.uniform(0.1, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 2
"""


@pytest.fixture(autouse=True)
def place(empty_place: Path) -> Path:
    (empty_place / "my_study.py").write_text(STUDY)
    return empty_place


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", "my_study.py", *arguments])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--listen", "0.0.0.0:7700"], "are for --executor slurm"),
        (["--executor", "processes", "--sbatch", "partition=gpu"], "are for --executor slurm"),
        (["--executor", "slurm", "--sbatch", "partition"], "NAME=VALUE"),
        (["--executor", "slurm", "--listen", "nowhere"], "must be HOST:PORT"),
        (["--executor", "join"], "it must be one of"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: list[str], reason: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_where_slurm_is_not_the_command_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    options = ["--sbatch", "partition=gpu", "--listen", "127.0.0.1:0"]
    result = call("--executor", "slurm", *options)
    assert result.exit_code == 2
    assert "sbatch is not on this machine" in " ".join(result.output.split())
