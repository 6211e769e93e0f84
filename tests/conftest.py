"""What the tests of the command line share."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test change from this process to others because the machine is slow."""
    monkeypatch.setattr("headwater.execute.auto.PATIENCE_S", math.inf)


@pytest.fixture
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty directory, and give back what loading a script from it changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_STORAGE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["headwater"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)
