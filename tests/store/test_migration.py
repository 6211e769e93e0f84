"""A record of an older version opens: for reading as it is, for writing with what it lacked."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.store import Lease, open_store

VERSION_1 = Path(__file__).with_name("version_1.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1.read_text())
    connection.close()
    return path


def read_version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT version FROM headwater_schema_version").fetchone()[0])
    finally:
        connection.close()


def test_an_old_record_is_read_as_it_is(old: Path) -> None:
    with open_store(old, create=False) as store:
        assert store.study().name == "train-1"
        assert [trial.epochs for trial in store.trials(1)] == [2, 2, 2]
        assert store.read_lease(1) is None
    assert read_version(old) == 1


def test_an_old_record_that_is_written_gets_what_it_lacked(old: Path) -> None:
    with open_store(old) as store, Lease(store, store.study()) as lease:
        store.add_fact(1, "key", 1, fence=lease.fence)
    with open_store(old) as store:
        assert len(store.study().uuid) == 32
        assert [trial.epochs for trial in store.trials(1)] == [2, 2, 2]
    assert read_version(old) == 2


def test_of_many_that_open_an_old_record_at_once_one_changes_it(old: Path) -> None:
    barrier = threading.Barrier(4)

    def read(_: int) -> str:
        barrier.wait()
        with open_store(old) as store:
            return store.study().uuid

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(read, range(4)))) == 1
