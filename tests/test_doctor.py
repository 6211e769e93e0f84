"""The doctor finds what is wrong and names the cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.doctor import Level, examine, is_within
from headwater.store import open_store
from headwater.train.machine import check_lanes


@pytest.mark.parametrize(
    ("installed", "requirement", "answer"),
    [
        ("2.13.0+cpu", "torch<2.14,>=2.13", True),
        ("2.14.0", "torch<2.14,>=2.13", False),
        ("2.12.1", "torch<2.14,>=2.13", False),
        ("2.14.0a0+git", "torch<2.14,>=2.13", False),
        ("13.0", "rich>=13", True),
    ],
)
def test_versions_are_compared_with_what_is_asked_for(installed: str, requirement: str, answer: bool) -> None:
    assert is_within(installed, requirement) is answer


def test_all_that_matters_is_looked_at(tmp_path: Path) -> None:
    names = [check.name for check in examine(str(tmp_path / "study.db"))]
    for name in ("python", "headwater", "torch", "optuna", "sqlalchemy", "lanes", "devices", "threads", "memory"):
        assert name in names


def test_lanes_compute_what_models_alone_do() -> None:
    check_lanes()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_storage_that_can_be_written_is_left_as_it_was(tmp_path: Path, form: str) -> None:
    check = list(examine(form.format(tmp_path / "study.db")))[-1]
    assert check.level is Level.OK
    assert list(tmp_path.iterdir()) == []


def test_an_existing_record_is_kept(tmp_path: Path) -> None:
    with open_store(tmp_path / "study.db"):
        pass
    check = list(examine(str(tmp_path / "study.db")))[-1]
    assert check.level is Level.OK
    assert (tmp_path / "study.db").exists()


def test_a_storage_that_cannot_be_written_fails_with_its_cure(tmp_path: Path) -> None:
    check = list(examine(str(tmp_path / "nowhere" / "study.db")))[-1]
    assert check.level is Level.FAIL
    assert "no directory" in check.text
    assert "--storage" in check.cure
