"""A machine has one copy of a data file, whoever asks for it."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

from headwater.errors import StoreError
from headwater.execute.data_copies import copy_data_file, remove_copies

NAME = "/elsewhere/data-1234.bin"


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_file_is_fetched_once_however_many_ask_at_a_time() -> None:
    fetched: list[int] = []

    def fetch() -> memoryview:
        fetched.append(1)
        return memoryview(b"all of it")

    threads = [threading.Thread(target=copy_data_file, args=(NAME, fetch)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert Path(copy_data_file(NAME, fetch)).read_bytes() == b"all of it"


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> memoryview:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        copy_data_file(NAME, fail)
    remove_copies([])
    assert not any(tmp_path.iterdir())


def test_copies_are_removed_with_their_folder(tmp_path: Path) -> None:
    first = copy_data_file(NAME, lambda: memoryview(b"one"))
    second = copy_data_file("/elsewhere/data-5678.bin", lambda: memoryview(b"two"))
    remove_copies([NAME, "/elsewhere/data-never.bin"])
    assert not Path(first).exists()
    assert Path(second).read_bytes() == b"two"
    remove_copies(["/elsewhere/data-5678.bin"])
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_not_ours_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_data_file(NAME, lambda: memoryview(b"one"))
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "other")
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(StoreError, match="TMPDIR"):
        copy_data_file(NAME, lambda: memoryview(b"one"))
