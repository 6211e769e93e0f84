"""A record in a SQLite file that nobody writes, read without SQLAlchemy: its import takes longer than listing studies.

Only a file is read this way that is exactly as `open_store` leaves it: no journal beside it, and tables and indexes
whose SQL is ours to the letter. Every other record is for `open_store`, which checks it and explains what is wrong.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from headwater.errors import StoreError
from headwater.store import rows
from headwater.store.runner import Runner
from headwater.store.values import StudyInfo
from headwater.trials import TrialRecord

VERSION = 3
"""The schema version that is read this way."""
SCHEMA_DIGEST = "05ef1edcafa445fee0df4de7b130e2b2"
"""Of the SQL of all tables and indexes. A file with other SQL, as of an earlier version, takes the long way."""
LARGEST_VALUE = 2**28
"""Bytes of a row; a larger one is refused."""
COMPANIONS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database while somebody writes it, or after a crash."""


class RecordReader(Protocol):
    """Reading of studies; `damaged` takes a line about each row that is left out."""

    def studies(self, damaged: list[str] | None = None) -> list[StudyInfo]:
        """Return every study, the oldest first."""

    def trials(
        self, study_id: int, decode: rows.Decode | None = None, damaged: list[str] | None = None
    ) -> list[TrialRecord]:
        """Return every trial of a study by number."""

    def facts(self, study_id: int, damaged: list[str] | None = None) -> dict[str, Any]:  # Any: JSON values
        """Return the latest value under each key."""

    def read_lease(self, study_id: int) -> Runner | None:
        """Return the process that runs a study, None if none does."""


def open_quiet(storage: str) -> QuietFile | None:
    """Open a record for reading if it is a SQLite file of ours that nobody writes; else return None."""
    if ":" in storage:  # a URL, or in memory
        return None
    try:
        path = Path(storage).expanduser().resolve()
        companions = [Path(f"{path}{suffix}") for suffix in COMPANIONS]
        if not path.is_file() or any(one.is_symlink() or one.exists() for one in companions):
            return None
    except (OSError, RuntimeError, ValueError):  # links in a circle, or no path at all
        return None
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
        try:
            if _is_ours(connection):
                return QuietFile(connection)
        except sqlite3.Error:
            connection.close()
            raise
        connection.close()
    return None


def digest_schema(connection: sqlite3.Connection) -> str:
    """Return a digest of the SQL of everything in a database."""
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return blake2b(repr(sorted(map(str, found))).encode(), digest_size=16).hexdigest()


def _is_ours(connection: sqlite3.Connection) -> bool:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.text_factory = lambda content: content.decode("utf-8", "backslashreplace")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    if digest_schema(connection) != SCHEMA_DIGEST:
        return False
    return connection.execute("SELECT version FROM headwater_schema_version").fetchall() == [(VERSION,)]


class QuietFile:
    """The studies in such a file. Its methods raise sqlite3.Error where the file is damaged: then try `open_store`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def studies(self, damaged: list[str] | None = None) -> list[StudyInfo]:
        """Return every study, the oldest first; what cannot be read is left out."""
        names = ("id", "name", "metric", "mode", "seed", "space", "settings", "created", "uuid")
        found = self._fetch(f"SELECT {', '.join(names)} FROM studies ORDER BY id")
        mappings = [dict(zip(names, row, strict=True)) for row in found]
        return rows.read_sound(
            [(f"study {row['name']!r:.60}", partial(rows.read_study, row)) for row in mappings], damaged
        )

    def trials(
        self, study_id: int, decode: rows.Decode | None = None, damaged: list[str] | None = None
    ) -> list[TrialRecord]:
        """Return every trial of a study by number; one that cannot be read is an error, unless `damaged` takes it."""
        tables = (
            "SELECT number, config FROM trials WHERE study_id = ? ORDER BY number",
            "SELECT number, epoch, metrics FROM reports WHERE study_id = ? ORDER BY epoch, number",
            "SELECT number, status, error, seconds FROM transitions WHERE study_id = ? ORDER BY sequence",
            "SELECT number, kind, text FROM notes WHERE study_id = ? ORDER BY sequence",
        )
        return rows.read_trials(*(self._fetch(sql, study_id) for sql in tables), decode=decode, damaged=damaged)

    def facts(self, study_id: int, damaged: list[str] | None = None) -> dict[str, Any]:  # Any: JSON values
        """Return the latest value under each key."""
        found = self._fetch("SELECT key, value FROM facts WHERE study_id = ? ORDER BY sequence", study_id)
        return dict(rows.read_sound([("a fact", partial(rows.read_fact, *row)) for row in found], damaged))

    def read_lease(self, study_id: int) -> Runner | None:
        """Return the process that runs a study, None if none does."""
        names = ("holder", "host", "pid", "process", "fence", "beat")
        sql = f"SELECT {', '.join(names)} FROM leases WHERE study_id = ? AND holder IS NOT NULL"
        found = self._fetch(sql, study_id)
        try:
            return rows.read_lease(dict(zip(names, found[0], strict=True))) if found else None
        except StoreError as error:
            raise StoreError(f"it cannot be told who runs study {study_id}: of its lease, {error}") from error

    def _fetch(self, sql: str, *parameters: int) -> list[tuple[Any, ...]]:  # Any: a column's value
        return self._connection.execute(sql, parameters).fetchall()
