"""A user's file becomes a study, and whatever stands in the way is said in one message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import StudyError
from headwater.loading import Loaded, load_study_file
from headwater.study import Study

HEAD = """
import headwater as hw

def train(trial):
    pass

def make(name="first"):
    return hw.Study(train, space={"lr": hw.choice([1, 2])}, metric="loss", name=name)

"""

NAMES = ("my_study", "neighbour_of_my_study", "no_suffix")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give back what loading a script changes."""
    monkeypatch.setattr(sys, "argv", ["headwater", "run"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in NAMES or name.startswith("headwater_file_"):
            del sys.modules[name]


def load(directory: Path, text: str, variable: str | None = None) -> Loaded:
    path = directory / "my_study.py"
    path.write_text(HEAD + text)
    return load_study_file(path, variable)


def message_of(directory: Path, text: str, variable: str | None = None) -> str:
    with pytest.raises(StudyError) as caught:
        load(directory, text, variable)
    return str(caught.value)


@pytest.mark.parametrize("text", ["anything = make()", "a = b = make()", "def study():\n    return make()"])
def test_the_one_study_is_found(tmp_path: Path, text: str) -> None:
    loaded = load(tmp_path, text)
    assert (loaded.study.name, loaded.num_trials) == ("first", None)


def test_the_main_part_does_not_run(tmp_path: Path) -> None:
    load(tmp_path, "study = make()\nif __name__ == '__main__':\n    raise SystemExit")


def test_one_of_several_studies_is_named(tmp_path: Path) -> None:
    text = "a = make()\nb = make('second')\ndef c():\n    return make('third')"
    assert load(tmp_path, text, "b").study.name == "second"
    assert load(tmp_path, text, "c").study.name == "third"


def test_the_file_may_say_how_many_trials(tmp_path: Path) -> None:
    assert load(tmp_path, "study = make()\nNUM_TRIALS = 12").num_trials == 12


def test_a_call_of_run_is_not_made_but_understood(tmp_path: Path) -> None:
    run = Study.run
    text = "a = make()\ntry:\n    make('second').run(num_trials=5)\nexcept Exception:\n    pass\nraise ValueError"
    loaded = load(tmp_path, text)
    assert (loaded.study.name, loaded.num_trials) == ("second", 5)
    assert Study.run is run


def test_the_file_finds_its_neighbours_and_sees_no_arguments_of_ours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_my_study.py").write_text("NAME = 'from next door'")
    load(tmp_path, "import sys\nfrom neighbour_of_my_study import NAME\nassert len(sys.argv) == 1\nstudy = make(NAME)")


@pytest.mark.parametrize("name", ["random.py", "my-study.py", "pytest.py", "no_suffix"])
def test_no_name_of_a_file_hides_a_module(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(Path(name).stem)
    (tmp_path / name).write_text(HEAD + "study = make()")
    assert load_study_file(tmp_path / name).study.name == "first"
    assert sys.modules.get(Path(name).stem) is before or Path(name).stem == "no_suffix"


@pytest.mark.parametrize(
    ("text", "variable", "parts"),
    [
        ("", None, ("has no study", "hw.Study(train", "study() that returns one")),
        ("a = make()\nb = make()", None, ("2 studies, a, b", "--study a")),
        ("a = make()", "b", ("no variable 'b'", "it has a")),
        ("x = 3", "x", ("x in", "is 3;", "must be a headwater.Study")),
        ("def study():\n    return 3", None, ("study() in", "returned 3;")),
        ("study = make()\nNUM_TRIALS = 'many'", None, ("NUM_TRIALS", "'many'", "whole number")),
        ("raise SystemExit(2)", None, ("ended Python with 2", "__main__")),
        ("study = hw.Study(train, space={}, metric='loss')", None, ("line 10", "empty dictionary")),
    ],
)
def test_a_file_that_does_not_say_which_study_is_answered(
    tmp_path: Path, text: str, variable: str | None, parts: tuple[str, ...]
) -> None:
    message = message_of(tmp_path, text, variable)
    assert all(part in message for part in ("my_study.py", *parts))
    assert "Traceback" not in message


def test_an_exception_is_shown_from_the_users_file_on(tmp_path: Path) -> None:
    message = message_of(tmp_path, "def read():\n    return {}['data']\nread()")
    assert "my_study.py could not be loaded" in message
    assert message.rstrip().endswith("KeyError: 'data'")
    assert message.count("File ") == 2
    assert "importlib" not in message


def test_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    message = message_of(tmp_path, "study = make(")
    assert all(part in message for part in ("could not be loaded", "line 10", "SyntaxError"))


def test_a_missing_file_is_answered_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(StudyError, match=r"there is no file .*trian\.py; give the Python file .*train\.py"):
        load_study_file(tmp_path / "trian.py")


def test_a_directory_is_answered_with_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(StudyError, match=r"is a directory; give the Python file .*train\.py"):
        load_study_file(tmp_path)
