"""A file that nobody writes is read without SQLAlchemy as the store reads it; any other is left to the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.page_studies import finish_search, write_hostile, write_paid, write_plain, write_transferred
from typer.testing import CliRunner

from headwater.cli import app
from headwater.store import Runner, open_store, read_shown
from headwater.store.quiet_file import SCHEMA_DIGEST, VERSION, QuietFile, RecordReader, digest_schema, open_quiet
from headwater.store.schema import SCHEMA_VERSION


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def require_quiet(path: Path) -> QuietFile:
    quiet = open_quiet(str(path))
    assert quiet is not None
    return quiet


def change(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


def test_a_new_record_is_a_file_that_can_be_read_so(record: Path) -> None:
    open_store(record).close()
    connection = sqlite3.connect(record)
    assert (digest_schema(connection), VERSION) == (SCHEMA_DIGEST, SCHEMA_VERSION)
    connection.close()
    with require_quiet(record) as quiet:
        assert quiet.studies() == []


@pytest.mark.parametrize("write", [write_plain, write_hostile, write_paid, write_transferred])
def test_a_quiet_file_is_read_as_the_store_reads_it(record: Path, write: Any) -> None:  # Any: one of these functions
    write(record)
    with open_store(record) as store:
        store.take_lease(store.study().id, Runner.here(), instead_of=None)
    with open_store(record, create=False) as store, require_quiet(record) as quiet:
        assert quiet.studies() == store.studies()
        assert quiet.studies()
        for info in store.studies():
            # By their text, in which NaN equals NaN.
            assert repr(quiet.trials(info.id, read_shown)) == repr(store.trials(info.id, read_shown))
            assert repr(quiet.facts(info.id)) == repr(store.facts(info.id))
            assert quiet.read_lease(info.id) == store.read_lease(info.id)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE trials SET config = 'no JSON' WHERE number = 3",
        "UPDATE studies SET mode = 'both'",
        "INSERT INTO facts (study_id, key, value, time) VALUES (1, 'run', 'no JSON', 0)",
    ],
)
def test_damage_is_told_as_the_store_tells_it(record: Path, sql: str) -> None:
    write_plain(record)
    change(record, sql)
    told = []
    with open_store(record, create=False) as store, require_quiet(record) as quiet:
        readers: tuple[RecordReader, ...] = (store, quiet)
        for reader in readers:
            lines: list[str] = []
            reader.studies(lines)
            reader.trials(1, read_shown, lines)
            reader.facts(1, lines)
            told.append(lines)
    assert told[0] == told[1] != []


def test_a_file_that_somebody_writes_is_left_to_the_store(record: Path) -> None:
    write_plain(record)
    with open_store(record) as writer:
        writer.add_fact(1, "key", "value")
        assert open_quiet(str(record)) is None
    require_quiet(record).__exit__(None, None, None)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW more AS SELECT * FROM studies",
        "CREATE TABLE more (x)",
        "CREATE INDEX more ON studies (name)",
        "UPDATE headwater_schema_version SET version = 4",
    ],
)
def test_a_file_that_is_not_ours_to_the_letter_is_left_to_the_store(record: Path, sql: str) -> None:
    write_plain(record)
    change(record, sql)
    assert open_quiet(str(record)) is None


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_file_with_a_journal_or_a_link_beside_it_is_left_to_the_store(record: Path, suffix: str) -> None:
    write_plain(record)
    Path(f"{record}{suffix}").symlink_to(record.parent / "elsewhere")
    assert open_quiet(str(record)) is None


def test_what_is_no_record_is_left_to_the_store(record: Path, tmp_path: Path) -> None:
    record.write_text("no database")
    for storage in (record, tmp_path, tmp_path / "missing.db", "memory:", f"sqlite:///{record}", "a\0b"):
        assert open_quiet(str(storage)) is None


def test_the_list_of_a_file_that_is_damaged_within_is_refused_by_the_store(record: Path) -> None:
    write_plain(record, num_trials=400)
    content = bytearray(record.read_bytes())
    for place in range(20 * 4096, len(content), 4096):
        content[place : place + 64] = b"\xff" * 64
    record.write_bytes(content)
    answer = CliRunner().invoke(app, ["ls", "--storage", str(record)])
    assert answer.exit_code == 2
    assert "cannot be used: database disk image is malformed" in answer.stderr


def test_the_list_says_the_same_while_a_study_is_written(record: Path) -> None:
    write_plain(record)
    finish_search(record, ended_early=None)
    quiet = CliRunner().invoke(app, ["ls", "--storage", str(record)])
    with open_store(record) as writer:
        writer.add_fact(1, "key", "value")
        written = CliRunner().invoke(app, ["ls", "--storage", str(record)])
    assert quiet.exit_code == 0
    assert quiet.stdout == written.stdout
