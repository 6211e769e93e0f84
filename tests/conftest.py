"""Fixtures that many tests share, and the instruction set that all of them compute with."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.accelerator.building import can_compile, load_accelerator

from headwater.doctor import ISA_VARIABLE, SAFE_ISA, check_bfloat16

DEVICE_VARIABLE = "HEADWATER_TEST_DEVICE"
"""Names the variable with the device that studies of the tests train on: "sim", or the CPU without it."""


SLOW = (
    "accelerator/",
    "cli/test_cluster",
    "cloud/",
    "execute/",
    "faults/",
    "serve/",
    "test_deadlines",
    "test_faults",
    "test_kill",
    "test_memory",
    "test_watching",
)
"""Tests that start clusters, services or browsers, or take minutes: `make test` leaves them to `make test-all`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests."""
    root = Path(__file__).parent
    for item in items:
        if item.path.relative_to(root).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    """Limit the instruction set where bfloat16 would end the process, before any test module imports torch.

    Workers of xdist and processes that tests start inherit the variable, so the machine is probed once.
    """
    if (
        "PYTEST_XDIST_WORKER" not in os.environ
        and ISA_VARIABLE not in os.environ
        and ISA_VARIABLE in check_bfloat16().cure
    ):
        os.environ[ISA_VARIABLE] = SAFE_ISA
    if os.environ.get(DEVICE_VARIABLE) == "sim":
        if not can_compile() and "CI" not in os.environ:
            pytest.exit("the simulated accelerator needs a C++ compiler and ninja", returncode=0)
        load_accelerator()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test change from this process to others because the machine is slow."""
    monkeypatch.setattr("headwater.execute.auto.PATIENCE_S", math.inf)
    monkeypatch.setattr("headwater.execute.auto.WARM_UP_S", math.inf)  # also where nobody knows how long a study takes


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
