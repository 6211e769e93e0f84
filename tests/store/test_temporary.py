"""What a process leaves behind that is killed goes with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.execute.calling import python_environment

from headwater.store import temporary
from headwater.store.temporary import TemporaryFolder

HOLD = """
import sys
from pathlib import Path
from headwater.store import temporary
temporary.MEMORY = Path(sys.argv[1])
folder = temporary.TemporaryFolder(in_memory=True)
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(temporary, "MEMORY", tmp_path)
    return tmp_path


def test_a_folder_goes_with_all_that_is_in_it() -> None:
    with TemporaryFolder(in_memory=True) as path:
        (path / "inner").mkdir()
        (path / "inner" / "state").write_bytes(b"x")
    assert not path.exists()


def test_a_folder_in_use_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "SETTLED_S", -1.0)
    with TemporaryFolder(in_memory=True) as first, TemporaryFolder(in_memory=True) as second:
        assert sorted(place.iterdir()) == sorted([first, second])


def test_what_a_killed_process_has_left_is_removed_by_the_next(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=python_environment()
    ) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        monkeypatch.setattr(temporary, "SETTLED_S", -1.0)
        with TemporaryFolder(in_memory=True):
            assert left.exists()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with TemporaryFolder(in_memory=True):
        assert not left.exists()


def test_a_young_folder_may_have_an_owner_who_has_not_locked_it_yet(place: Path) -> None:
    young = place / f"{temporary.PREFIX}young"
    young.mkdir()
    (young / temporary.OWNER).touch()
    with TemporaryFolder(in_memory=True):
        assert young.exists()


def test_folders_of_others_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "SETTLED_S", -1.0)
    other = place / f"{temporary.PREFIX}other"
    other.mkdir()
    with TemporaryFolder(in_memory=True):
        assert other.exists()
