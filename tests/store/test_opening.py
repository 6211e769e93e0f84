"""Opening a store: what a URL may be, and what is said when it cannot be opened."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import StoreError
from headwater.store import Batch, StudyInfo, open_store

INFO = StudyInfo(name="first", metric="accuracy", mode="max", seed=7)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "written.db"
    with open_store(path) as store:
        store.create_study(INFO)
    return path


@pytest.fixture
def protected() -> Iterator[Path]:
    """A written store that this process may read but not write; root has to step down for that."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "study.db"
        with open_store(path) as store:
            store.create_study(INFO)
        path.chmod(0o444)
        path.parent.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            yield path
        finally:
            if is_root:
                os.seteuid(0)
            path.parent.chmod(0o700)


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
def test_paths_and_urls_name_the_same_file(written: Path, form: str) -> None:
    with open_store(form.format(written)) as store:
        assert store.study().name == "first"


def test_odd_characters_in_a_path_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1? 河.db"
    with open_store(str(path)) as store:
        store.create_study(INFO)
    assert path.exists()
    with open_store(str(path), create=False) as reader:
        assert reader.study().name == "first"


def test_a_relative_path_holds_when_the_directory_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("study.db") as store:
        monkeypatch.chdir("/")
        store.create_study(INFO)
        store.close()
        assert store.study().name == "first"
    assert (tmp_path / "study.db").exists()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.touch()
    with open_store(path) as store:
        assert store.studies() == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:study.db", "neither a path nor the URL of a database; possible are a path"),
        ("sqlite://host/study.db", "cannot hold a record; possible are a path"),
        ("sqlite:///study.db?mode=ro", "cannot hold a record"),
        ("mysql://root:secret@host/db", r"'mysql://root:\*\*\*@host/db' cannot hold a record; .*postgresql://"),
        ("postgresql+asyncpg://host/db", "cannot hold a record"),
        ("/no/such/directory/study.db", "there is no directory /no/such/directory; create it or give another path"),
        ("/tmp", "/tmp is a directory; give the path of a file in it, such as /tmp/study.db"),
    ],
)
def test_a_url_that_cannot_be_used_is_explained(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_store(url)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 100)
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"notes.txt is not a database; give a file that Headwater wrote"):
            open_store(path, create=create)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE trials (id INTEGER)")
    other.close()
    with pytest.raises(StoreError, match=r"belongs to another program .*'trials'.*; give the path of a new file"):
        open_store(path)


def test_a_store_of_a_newer_headwater_is_refused(written: Path) -> None:
    newer = sqlite3.connect(written)
    newer.execute("UPDATE headwater_schema_version SET version = 99")
    newer.commit()
    newer.close()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"newer Headwater \(schema 99\).*up to schema 3; upgrade with pip"):
            open_store(written, create=create)


def test_a_missing_file_is_not_made_for_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no file .*study.db; check the path, or start a study"):
        open_store(tmp_path / "study.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_memory_cannot_be_opened_for_reading() -> None:
    with pytest.raises(StoreError, match="starts empty, so there is nothing to read"):
        open_store("memory:", create=False)


def test_an_empty_file_holds_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "study.db").touch()
    with pytest.raises(StoreError, match="holds no study yet"):
        open_store(tmp_path / "study.db", create=False)


def test_a_reader_leaves_no_trace(written: Path) -> None:
    before = written.read_bytes()
    with open_store(written, create=False) as reader:
        assert reader.trials(reader.study().id) == []
        assert list(written.parent.iterdir()) == [written]
    assert written.read_bytes() == before


def test_a_reader_cannot_write(written: Path) -> None:
    with (
        open_store(written, create=False) as reader,
        pytest.raises(StoreError, match="was opened for reading; open it with create=True to write"),
    ):
        reader.write(reader.study().id, Batch())


def test_a_protected_store_can_be_read(protected: Path) -> None:
    with open_store(protected, create=False) as reader:
        assert reader.study().name == "first"


def test_a_protected_store_is_refused_for_writing(protected: Path) -> None:
    with pytest.raises(StoreError, match=r"study.db is read-only, so nothing can be recorded; make .* writable"):
        open_store(protected)


def test_a_protected_directory_is_refused(protected: Path) -> None:
    with pytest.raises(StoreError, match=r"new.db cannot be opened .*; check the permissions"):
        open_store(protected.parent / "new.db")


def test_a_missing_driver_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        StoreError, match=r"me:\*\*\*@.* needs the driver 'psycopg'; pip install 'headwater\[postgresql\]'"
    ):
        open_store("postgresql://me:secret@localhost/db")


def test_processes_that_open_a_new_store_at_once_all_succeed(tmp_path: Path) -> None:
    script = (
        "import sys; from headwater.store import *\n"
        "print('ready', flush=True); input()\n"
        "with open_store(sys.argv[1]) as store:\n"
        "    store.create_study(StudyInfo(name=sys.argv[2], metric='a', mode='max', seed=0))\n"
    )
    path = tmp_path / "study.db"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(6)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0] * 6
    with open_store(path, create=False) as reader:
        assert len(reader.studies()) == 6
