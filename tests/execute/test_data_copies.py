"""A machine has one copy of a data file, whoever asks for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.execute.calling import python_environment

from headwater.errors import StoreError
from headwater.execute.data_copies import DataCopies

OpenCopies = Callable[[], DataCopies]
NAME = "/elsewhere/data-1234.bin"


@pytest.fixture
def open_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenCopies]:
    """Make users of copies, all of them in a place of the test's own, who let go in the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(DataCopies()))


def test_a_file_is_fetched_once_however_many_ask_at_a_time(open_copies: OpenCopies) -> None:
    fetched: list[int] = []

    def fetch() -> memoryview:
        fetched.append(1)
        return memoryview(b"all of it")

    users = [open_copies() for _ in range(8)]
    threads = [threading.Thread(target=user.have, args=(NAME, fetch)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert Path(open_copies().have(NAME, fetch)).read_bytes() == b"all of it"


def test_a_fetch_that_fails_leaves_nothing(open_copies: OpenCopies, tmp_path: Path) -> None:
    def fail() -> memoryview:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        open_copies().have(NAME, fail)
    open_copies().remove()
    assert not any(tmp_path.iterdir())


def test_copies_are_removed_with_their_folder(open_copies: OpenCopies, tmp_path: Path) -> None:
    copies = open_copies()
    first = copies.have(NAME, lambda: memoryview(b"one"))
    second = copies.have("/elsewhere/data-5678.bin", lambda: memoryview(b"two"))
    copies.remove([NAME, "/elsewhere/data-never.bin"])
    assert not Path(first).exists()
    assert Path(second).read_bytes() == b"two"
    copies.remove(["/elsewhere/data-5678.bin"])
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_not_ours_is_not_used(open_copies: OpenCopies, tmp_path: Path) -> None:
    open_copies().have(NAME, lambda: memoryview(b"one"))
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "other")
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(StoreError, match="TMPDIR"):
        open_copies().have(NAME, lambda: memoryview(b"one"))


def test_what_a_dead_process_held_is_removed_by_whoever_comes_next(open_copies: OpenCopies, tmp_path: Path) -> None:
    script = """
import os, signal, sys, tempfile
from headwater.execute.data_copies import DataCopies
tempfile.tempdir = sys.argv[1]
copies = DataCopies()
copies.have("/killed/data-1.bin", lambda: memoryview(b"left"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=python_environment(), check=False)
    (folder,) = tmp_path.iterdir()
    assert [file.read_bytes() for file in folder.iterdir()] == [b"left"]
    copies = open_copies()
    copies.have(NAME, lambda: memoryview(b"used"))
    assert [file.read_bytes() for file in folder.iterdir()] == [b"used"]
    open_copies().remove()
    assert [file.read_bytes() for file in folder.iterdir()] == [b"used"]
    copies.close()
    open_copies().remove()
    assert not any(tmp_path.iterdir())


def test_a_copy_that_another_has_removed_is_fetched_again(open_copies: OpenCopies) -> None:
    mine, other = open_copies(), open_copies()
    mine.have(NAME, lambda: memoryview(b"one"))
    other.remove([NAME])
    assert Path(mine.have(NAME, lambda: memoryview(b"one"))).read_bytes() == b"one"
