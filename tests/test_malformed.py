"""Malformed input is refused in one line: it neither hangs nor ends in a raw traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import HeadwaterError, SpaceError, StoreError, StudyError

SCRIPT = """
import headwater as hw
study = hw.Study(lambda trial: 1.0, space={"x": hw.uniform(0, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 1
"""


class Unshowable:
    """A value whose `__repr__` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def run(**settings: Any) -> hw.Result:  # Any: malformed settings
    sound = {"space": {"x": hw.uniform(0, 1)}, "metric": "loss", "storage": None, "executor": "inline", "lanes": 1}
    return hw.Study(lambda trial: 1.0, **{**sound, **settings}).run(num_trials=1, watcher=hw.Silence())


def contain_itself() -> dict[str, Any]:
    space: dict[str, Any] = {"x": hw.uniform(0, 1)}
    space["again"] = space
    return space


def nest_deeply() -> dict[str, Any]:
    space: dict[str, Any] = {"x": hw.uniform(0, 1)}
    for _ in range(5000):
        space = {"a": space}
    return space


def raise_error(_: object) -> float:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (contain_itself(), "levels deep"),
        (nest_deeply(), "levels deep"),
        ({"x": hw.sample_from(raise_error)}, "raised ZeroDivisionError"),
        ({"x": hw.uniform(0, 10**5000)}, "give a finite number"),
        ({"x": {Unshowable()}}, "space key 'x': a value of class set has no text"),
        ({"x": hw.choice([Unshowable(), 1])}, "space key 'x': a value of class Unshowable has no text"),
    ],
    ids=["itself", "deep", "raises", "digits", "constant", "choice"],
)
def test_a_malformed_space_is_refused(space: dict[str, Any], told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        run(space=space)


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"devices": 10**30}, StudyError, "from 1 to 10000"),
        ({"num_seeds": 10**12}, StudyError, "from 1 to 10000"),
        ({"seed": 10**5000}, StudyError, "seed is <int>"),
        ({"trial_timeout": 10**400}, StudyError, "trial_timeout is 1000.*a finite number"),
        ({"also": None}, StudyError, "also is None; it must be a dictionary"),
        ({"storage": "x" * 5000}, StoreError, "cannot be opened: File name too long"),
    ],
    ids=["devices", "num_seeds", "seed", "trial_timeout", "also", "storage"],
)
def test_a_malformed_setting_is_refused(settings: dict[str, Any], error: type[HeadwaterError], told: str) -> None:
    with pytest.raises(error, match=told) as refused:
        run(**settings)
    assert len(str(refused.value)) < 500


def test_a_watcher_without_its_methods_is_refused() -> None:
    study = hw.Study(lambda trial: 1.0, space={"x": hw.uniform(0, 1)}, metric="loss", storage=None)
    watcher: Any = object()
    with pytest.raises(StudyError, match="it must have the methods start, pulse, tell and end"):
        study.run(num_trials=1, watcher=watcher)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("class Own(BaseException): pass\nraise Own", ["file.py"]),
        ("raise GeneratorExit", ["file.py"]),
        (SCRIPT, ["x" * 5000 + ".py"]),
        (SCRIPT, ["file.py", "--lanes", "9" * 5000]),
        (SCRIPT, ["file.py", "--surrogate", "9" * 5000]),
        (SCRIPT, ["file.py", "--devices", "9" * 30]),
    ],
    ids=["BaseException", "GeneratorExit", "long name", "lanes", "surrogate", "devices"],
)
def test_a_malformed_command_ends_with_status_2(text: str, arguments: list[str], empty_place: Path) -> None:
    (empty_place / "file.py").write_text(text)
    ended = CliRunner().invoke(app, ["run", *arguments])
    assert ended.exit_code == 2
    assert ended.stderr.startswith("error: ")
