"""Options by which a study trains on workers that join."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.execute.joiners import end_worker, find_port, start_worker
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.execute.join_keys import have_key

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


def test_a_study_is_run_on_workers_that_join_where_it_was_told_to_listen(place: Path) -> None:
    address = f"127.0.0.1:{find_port()}"
    have_key(place / "key")
    worker = start_worker(address, place / "key")
    try:
        result = call("--executor", "join", "--listen", address, "--key-file", str(place / "key"))
        assert result.exit_code == 0, result.output
        assert f"--join tcp://{address}" in result.output
        assert worker.wait() == 0
    finally:
        end_worker(worker)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--listen", "0.0.0.0:7700"], "join or slurm"),
        (["--executor", "join", "--sbatch", "partition=gpu"], "--executor slurm"),
        (["--executor", "slurm", "--sbatch", "partition"], "NAME=VALUE"),
        (["--executor", "join", "--listen", "nowhere"], "tcp://lab-3:7700"),
        (["--executor", "join", "--devices", "2"], "as many as workers join"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: list[str], reason: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_where_slurm_is_not_the_command_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    options = ["--sbatch", "partition=gpu", "--listen", "127.0.0.1:0", "--key-file", str(place / "key")]
    result = call("--executor", "slurm", *options)
    assert result.exit_code == 2
    assert "sbatch is not on this machine" in " ".join(result.output.split())
