"""What is sent to a service: files, by the places that they have below the study's own."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from headwater.errors import StudyError
from headwater.remote.bundling import find_source, find_variable, pack_files


def test_files_keep_their_places_and_folders_go_whole(empty_place: Path) -> None:
    (empty_place / "parts" / "__pycache__").mkdir(parents=True)
    (empty_place / "train.py").write_text("import parts\n")
    (empty_place / "parts" / "__init__.py").write_text("")
    (empty_place / "parts" / "__pycache__" / "x.pyc").write_bytes(b"\x00")
    (empty_place / "data.bin").write_bytes(b"\xff\x00")
    name, files = pack_files(Path("train.py"), [Path("parts"), empty_place / "data.bin", Path("train.py")])
    assert name == "train.py"
    assert [one["path"] for one in files] == ["train.py", "parts/__init__.py", "data.bin"]
    assert files[0]["text"] == "import parts\n"
    assert b64decode(files[2]["base64"]) == b"\xff\x00"


def test_what_lies_elsewhere_or_is_not_there_is_refused(empty_place: Path) -> None:
    (empty_place / "train.py").write_text("")
    with pytest.raises(StudyError, match="is not below"):
        pack_files(Path("train.py"), [Path("/etc/hostname")])
    with pytest.raises(StudyError, match=r"missing\.csv cannot be read"):
        pack_files(Path("train.py"), [Path("missing.csv")])


def test_a_function_is_found_in_its_file_and_a_study_in_its_module() -> None:
    path, module = find_source(test_a_function_is_found_in_its_file_and_a_study_in_its_module)
    assert path == Path(__file__)
    assert find_variable(module, b64decode) == "b64decode"
    assert find_variable(module, object()) is None
    assert find_variable(None, b64decode) is None
