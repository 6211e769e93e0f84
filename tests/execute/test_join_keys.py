"""The key that a study and its workers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import StudyError
from headwater.execute.join_keys import FEWEST_BYTES, have_key, read_key


def test_a_key_is_drawn_once_and_its_owner_alone_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    key = have_key(file)
    assert len(key) >= 2 * FEWEST_BYTES
    assert have_key(file) == read_key(file) == key
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert have_key(tmp_path / "another") != key


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    have_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(StudyError, match="others can read"):
        have_key(tmp_path / "key")


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_text("123456\n")
    with pytest.raises(StudyError, match="6 bytes"):
        read_key(tmp_path / "key")


def test_a_key_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="--key-file"):
        read_key(tmp_path / "key")


def test_a_key_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="key_file"):
        have_key(tmp_path / "file" / "key")
