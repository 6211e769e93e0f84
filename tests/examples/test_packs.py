"""The example of packs: its trials load their images once, and end as they do one after the other."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.loading import load_study_file
from headwater.trials import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "packs.py"


@pytest.fixture(autouse=True)
def loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*sys.argv])  # loading a file changes both
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_the_command_of_the_example_trains_a_pack() -> None:
    done = CliRunner().invoke(app, ["run", str(EXAMPLE), "--trials", "24", "--storage", "memory:"])
    assert done.exit_code == 0
    assert "groups train as a pack: loading their data once should save" in done.stderr
    assert "24: 24 completed" in done.stdout
    assert "lanes part by `activation`" not in done.stderr


def test_trials_of_the_pack_equal_trials_alone() -> None:
    study = replace(load_study_file(EXAMPLE).study, lanes=1, storage=None)
    packed, alone = (replace(study, packing=packing).run(num_trials=5) for packing in ("cost", None))
    assert _numbers(packed) == _numbers(alone)


def _numbers(result: Result) -> list[list[dict[str, float]]]:
    return [[dict(report.metrics) for report in trial.history] for trial in result.trials]
