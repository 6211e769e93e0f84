"""Files and numbers on the command line that would hang a verb, or fill the memory: one line each, and at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app

pytestmark = pytest.mark.timeout(60)

PROFILE = """
seconds_per_epoch: {1: 10, 2: 6}
instance: {name: x, devices: 4, dollars_per_hour: 3.0, spot_dollars_per_hour: 1.0, provision_s: 60, initialise_s: 30}
"""
PLAN = ["plan", "--deadline", "1h", "--stages", "8x1,2x3"]
SERVER = ["--server", "http://127.0.0.1:9", "--token", "hw_x"]
READERS = {
    "profile": [*PLAN, "--profile", "FILE"],
    "catalogue": [*PLAN, "--profile", "good.yaml", "--catalogue", "FILE"],
    "history": [*PLAN, "--profile", "good.yaml", "--spot", "--spot-history", "FILE"],
    "history of a profile": [*PLAN, "--profile", "names.yaml", "--spot"],
    "file to submit": ["submit", "FILE", *SERVER],
    "file to include": ["submit", "good.py", "--include", "FILE", *SERVER],
    "record": ["ls", "--storage", "FILE"],
    "record to change": ["rename", "a", "b", "--storage", "FILE"],
    "study": ["run", "FILE", "--trials", "1"],
}
FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path),
}


def require_one_line(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 1000
    return result.stderr


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused(empty_place: Path, reader: str, kind: str) -> None:
    Path("good.yaml").write_text(PROFILE)
    Path("good.py").write_text("")
    Path("names.yaml").write_text(PROFILE.replace("name: x", "name: x, spot_history: bad"))
    FILES[kind](empty_place / "bad")
    require_one_line(*(word.replace("FILE", "bad") for word in READERS[reader]))


@pytest.mark.parametrize(
    "data", [["x" * 100_000], [10**300, 0], [1e308, 0], [True, False], [0.5, 1], [float("inf"), 0], [float("nan"), 0]]
)
def test_a_history_of_strange_counts_is_refused(empty_place: Path, data: list[object]) -> None:
    Path("good.yaml").write_text(PROFILE)
    Path("history.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))
    told = require_one_line(*PLAN, "--profile", "good.yaml", "--spot", "--spot-history", "history.json")
    assert "whole number" in told


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--stages", "8x" + "9" * 5000),
        ("--stages", "9" * 5000 + "x1"),
        ("--stages", ",".join(["1x1"] * 20_000)),
        ("--relative-speed", "1e-300"),
        ("--relative-speed", "nan"),
        ("--deadline", "0"),
    ],
)
def test_numbers_that_nobody_means_are_refused(empty_place: Path, option: str, value: str) -> None:
    Path("good.yaml").write_text(PROFILE)
    assert option == "--deadline" or option in require_one_line(*PLAN, "--profile", "good.yaml", option, value)
