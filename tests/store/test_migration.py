"""A record of an older version opens: for reading as it is, for writing with what it lacked."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.store import Batch, Lease, open_store, read_spans
from headwater.trials import Span, SpanPurpose

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
        assert read_spans(store) == []
    assert read_version(old) == 1


def test_an_old_record_that_is_written_gets_what_it_lacked(old: Path) -> None:
    with open_store(old) as store, Lease(store, store.study()) as lease:
        store.add_fact(1, "key", 1, fence=lease.fence)
    with open_store(old) as store:
        assert len(store.study().uuid) == 32
        assert [trial.epochs for trial in store.trials(1)] == [2, 2, 2]
    assert read_version(old) == 3


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_record_takes_spans_once_it_is_written(old: Path, version: int) -> None:
    if version == 2:
        open_store(old).close()
        connection = sqlite3.connect(old)
        connection.executescript("DROP TABLE spans; UPDATE headwater_schema_version SET version = 2")
        connection.close()
    assert read_version(old) == version
    purpose = SpanPurpose.LANES
    span = Span(study="train-1", device="cpu:0", purpose=purpose, trials=(0, 2), begin_s=1.5, end_s=2.25)
    with open_store(old) as store:
        store.write(1, Batch(spans=(span,)))
    with open_store(old, create=False) as store:
        assert read_spans(store) == [span]


def test_of_many_that_open_an_old_record_at_once_one_changes_it(old: Path) -> None:
    barrier = threading.Barrier(4)

    def read(_: int) -> str:
        barrier.wait()
        with open_store(old) as store:
            return store.study().uuid

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(read, range(4)))) == 1
