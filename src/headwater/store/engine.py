"""From a URL to a checked database: the only module that knows SQLite from PostgreSQL.

SQLite runs in WAL mode, where readers and the one writer never wait for each other, with synchronous=NORMAL: a killed
process loses no committed batch; a power cut may lose the last ones but never leaves half of one.

The tests run on PostgreSQL where HEADWATER_POSTGRES_URL names a server: `make test-postgresql` starts one for them.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import (
    ClauseElement,
    Connection,
    Dialect,
    Engine,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from headwater.errors import StoreError
from headwater.store.migration import migrate
from headwater.store.schema import METADATA, SCHEMA_VERSION, SEQUENCE, VERSIONS

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

MEMORY_NAMES = (None, "memory:", ":memory:", "sqlite://", "sqlite:///:memory:")
LOCK_TIMEOUT_S = 30.0
LARGEST_VALUE = 2**28
"""Bytes of a row in SQLite; a larger one is refused."""
POSTGRESQL_LOCKED = "55P03"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The first bytes of a rollback journal, and the last ones of a journal that names a super-journal."""
_PLAIN_SQL = re.compile(
    r"CREATE TABLE [^()]*\((?:[^()]|\([\w\s,\"]*\))*\)|CREATE (?:UNIQUE )?INDEX [^()]*\([\w\s,\"]*\)", re.ASCII
)
"""A table or an index of columns alone. Inner parentheses hold names: no expression, no call of a function."""

Cursor: TypeAlias = Any  # Any: the driver's own, of a connection that is in a transaction
Insertion: TypeAlias = Callable[[Cursor, Sequence[Mapping[str, Any]]], None]  # Any: a column's value
"""Appends rows, by column."""

_POSSIBLE = "possible are a path ('study.db'), 'sqlite:///study.db', 'memory:' and 'postgresql://user@host/database'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that holds our tables, seen twice: a reader's transaction shows one moment of the whole record."""

    writer: Engine
    reader: Engine
    name: str
    """As messages call it: no password."""
    is_read_only: bool
    path: Path | None = None
    """The file; None for a server, and in memory."""
    version: int = SCHEMA_VERSION
    """Of the tables as they were found; an older one stays as it is where only reading is asked for."""
    file_id: tuple[int, int] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open it too."""
        return self.path is not None or self.writer.dialect.name != "sqlite"

    @property
    def driver(self) -> Any:  # Any: a module of the DB-API, whose exceptions are its attributes
        """What speaks to the database, below SQLAlchemy."""
        return self.writer.dialect.loaded_dbapi

    def identify(self) -> str:
        """Return what tells this database from a copy of it: its place, or the server's own number for it."""
        if self.path is not None:
            place = str(resolve(self.path))
        else:
            with self.reader.connect() as connection:
                query = text(
                    "SELECT (SELECT system_identifier FROM pg_control_system()),"
                    " (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
                place = str(tuple(connection.execute(query).one()))
        return blake2b(place.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()

    def require_present(self) -> None:
        """Raise if the file was deleted or replaced: what is written would be lost without a word."""
        if self.file_id is not None and _identify(self.path) != self.file_id:
            raise StoreError(
                f"{self.name} was deleted or replaced by another file while it was in use, so nothing more can be "
                "recorded; put the file back and resume the study, or run a new one"
            )


def open_database(url: str | Path | None, *, create: bool) -> Database:
    """Connect to `url` and check or, if asked to, create the tables.

    Without `create` the database must be there already, and is opened for reading only.

    Raises:
        StoreError: There is no such database, or it is none of ours, or cannot be used as asked.
    """
    database = _connect(url, create=create)
    try:
        version = _prepare(database)
    except DBAPIError as error:
        database.writer.dispose()
        raise StoreError(explain_failure(error, database)) from error
    except StoreError:
        database.writer.dispose()
        raise
    return replace(database, version=version, file_id=None if database.is_read_only else _identify(database.path))


def resolve(path: Path) -> Path:
    """Follow links, as the database does: two names of one file mean the same record."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return path


def insert_once(table: Table, engine: Engine) -> sqlite.Insert | postgresql.Insert:
    """An insert that leaves a row alone which is there already."""
    return _insert_once(table, engine.dialect.name)


def _insert_once(table: Table, dialect: str) -> sqlite.Insert | postgresql.Insert:
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # not fast to import, and seldom wanted

        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


@cache
def prepare_insert(table: Table, dialect: Callable[[], Dialect], *, once: bool = False) -> Insertion:
    """Return what appends rows to a table, all in one call; with `once`, a row that is there already is left alone.

    The statement is made into text once in a process, for the driver itself: SQLAlchemy would look at every value of
    every row, and prepare for an answer that an insert has not.
    """
    names = tuple(column.name for column in table.c if column.name != SEQUENCE)
    statement = _insert_once(table, dialect().name) if once else insert(table)
    text, arrange = prepare(statement.inline(), dialect, names)

    def append(cursor: Cursor, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            cursor.executemany(text, list(map(arrange, rows)))

    return append


@cache
def prepare(
    statement: ClauseElement, dialect: Callable[[], Dialect], names: tuple[str, ...] | None = None
) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:  # Any: as the driver takes them
    """Return a statement as text, and what arranges its parameters, of these names, as the driver takes them."""
    compiled = statement.compile(dialect=dialect(), column_keys=names)
    places: Sequence[str] | None = getattr(compiled, "positiontup", None)
    if places is None:
        return str(compiled), dict
    return str(compiled), itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)


def explain_failure(error: Exception, database: Database) -> str:
    """Say what the database refused and what to do about it; the error is SQLAlchemy's, or the driver's own."""
    refusal = error.orig if isinstance(error, DBAPIError) else error
    name, reason = database.name, str(refusal).strip().partition("\n")[0]
    code = getattr(refusal, "sqlite_errorname", "")
    if code == "SQLITE_NOTADB":
        return f"{name} is not a database; give a file that Headwater wrote, or the path of a new one"
    if code.startswith("SQLITE_READONLY"):
        return f"{name} is read-only, so nothing can be recorded; make the file and its directory writable, or copy it"
    if code.startswith("SQLITE_CANTOPEN"):
        return f"{name} cannot be opened ({reason}); check the permissions of the file and of its directory"
    if code.startswith("SQLITE_BUSY") or getattr(refusal, "sqlstate", "") == POSTGRESQL_LOCKED:
        return f"{name} has been locked by another process for {LOCK_TIMEOUT_S:.0f} s; end that process and resume"
    if code == "SQLITE_TOOBIG":
        return f"{name} holds a value of more than {LARGEST_VALUE / 2**20:.0f} MiB, which no run of Headwater writes"
    if code:
        return f"{name} cannot be used: {reason}; check the disk (space, permissions), then resume the study"
    return f"{name} cannot be used: {reason}; check that the server runs and that user, password and database are right"


def _connect(url: str | Path | None, *, create: bool) -> Database:
    if url is None or str(url) in MEMORY_NAMES:
        return _connect_memory(create=create)
    if isinstance(url, Path) or ":" not in url:
        return _connect_file(Path(url), create=create)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(f"{url!r} is neither a path nor the URL of a database; {_POSSIBLE}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite") and parsed.database and not (parsed.query or parsed.host):
        return _connect_file(Path(parsed.database), create=create)
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"):
        return _connect_postgresql(parsed, create=create)
    raise StoreError(f"{parsed.render_as_string()!r} cannot hold a record; {_POSSIBLE}")


def _connect_memory(*, create: bool) -> Database:
    if not create:
        raise StoreError("a store in memory starts empty, so there is nothing to read; give the path of a study")
    # One connection is the whole database; threads take turns at it.
    engine = create_engine(
        "sqlite://", creator=lambda: _connect_sqlite(":memory:"), poolclass=QueuePool, pool_size=1, max_overflow=0
    )
    return _as_sqlite_database(engine, "the store in memory", is_read_only=False)


def _connect_file(given: Path, *, create: bool) -> Database:
    path = given.expanduser().absolute()
    try:
        path.exists()
    except OSError as error:
        raise StoreError(f"{str(path)[:60]!r}... cannot be opened: {error.strerror}; give a shorter path") from None
    if path.is_dir():
        raise StoreError(f"{path} is a directory; give the path of a file in it, such as {path / 'study.db'}")
    _require_plain_files(path)
    if not path.parent.is_dir():
        raise StoreError(
            f"{path} cannot be opened: there is no directory {path.parent}; create it or give another path"
        )
    if create:
        uri = f"{path.as_uri()}?mode=rwc"
        engine = create_engine("sqlite://", creator=lambda: _connect_sqlite(uri), poolclass=QueuePool)
    elif path.exists():
        engine = create_engine("sqlite://", creator=lambda: _connect_reader(path), poolclass=NullPool)
    else:
        raise StoreError(f"there is no file {path}; check the path, or start a study that writes it")
    return replace(_as_sqlite_database(engine, str(path), is_read_only=not create), path=path)


def _require_plain_files(path: Path) -> None:
    """Refuse what SQLite would wait for without end, or follow to a file elsewhere.

    Raises:
        StoreError: The path, or a file that SQLite keeps beside it, is a pipe, a device or a link, or a journal that
            names another file.
    """
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is a pipe or a device; give the path of a file")
    beside = [Path(f"{resolve(path)}{suffix}") for suffix in ("-journal", "-wal", "-shm")]
    for one in beside:
        if one.is_symlink() or (one.exists() and not one.is_file()):
            raise StoreError(f"{one} is no file, which no run of Headwater leaves beside a record; remove it")
    if _names_another(beside[0]):
        raise StoreError(
            f"{beside[0]} names another file, which SQLite would delete; no run of Headwater writes such a journal, so "
            "the record is not opened"
        )


def _names_another(journal: Path) -> bool:
    """Tell whether a rollback journal ends with the name of a super-journal, which SQLite deletes after a rollback."""
    try:
        with journal.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC), 0))
            return file.tell() > 0 and file.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{journal} cannot be read: {error.strerror}; check its permissions") from error


def _identify(path: Path | None) -> tuple[int, int] | None:
    """Return what the system calls the file behind a path, which a file that takes its place does not have."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _connect_sqlite(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    _limit_values(connection)
    _switch_to_wal(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Wait where SQLite does not: its timeout leaves out this switch, which is made once in the life of a file."""
    give_up = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.005)
        else:
            return


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Open for one transaction. Without a WAL file nobody is writing; "immutable" then keeps SQLite from making one."""
    _require_plain_files(path)  # again: the record may have been replaced since the last transaction
    is_written = Path(f"{path}-wal").exists()
    uri = f"{path.as_uri()}?mode=ro" if is_written else f"{path.as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    _limit_values(connection)
    return connection


def _limit_values(connection: sqlite3.Connection) -> None:
    """Keep a value of a stranger's file from filling the memory, or from failing a query by bytes that are no text."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.text_factory = _decode_text
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")


def _decode_text(content: bytes) -> str:
    """Read text that may be none: one bad value is to be seen in its place, not to make a whole query fail."""
    return content.decode("utf-8", "backslashreplace")


def _as_sqlite_database(engine: Engine, name: str, *, is_read_only: bool) -> Database:
    # Left to itself the driver would begin at the first insert only: a reader's queries would see several moments, and
    # a writer that has read before it writes could be refused the lock without waiting for it.
    event.listen(engine, "begin", _begin)
    writer = engine.execution_options(begin="BEGIN IMMEDIATE")
    return Database(writer=writer, reader=engine, name=name, is_read_only=is_read_only)


def _begin(connection: Connection) -> None:
    # Through SQLAlchemy, so that a lock held by another process raises its OperationalError, not the driver's.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _connect_postgresql(url: URL, *, create: bool) -> Database:
    driver = url.drivername if url.drivername.startswith("postgresql+") else "postgresql+psycopg"
    name = url.render_as_string()
    try:
        engine = create_engine(url.set(drivername=driver), pool_pre_ping=True, connect_args=_limit_waiting(url))
    except ModuleNotFoundError as error:
        raise StoreError(f"{name} needs the driver {error.name!r}; pip install 'headwater[postgresql]'") from error
    reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return Database(writer=engine, reader=reader, name=name, is_read_only=not create)


def _limit_waiting(url: URL) -> dict[str, str]:
    """Have the server wait for a lock no longer than SQLite does; it would wait for ever."""
    given = url.query.get("options", "")
    options = " ".join(
        (*([given] if isinstance(given, str) else given), f"-c lock_timeout={LOCK_TIMEOUT_S * 1000:.0f}")
    )
    return {"options": options.strip()}


def _prepare(database: Database) -> int:
    """Check the tables, and make or change them where that may be done; return their version."""
    version = _read_version(database)
    if version is None and database.is_read_only:
        raise StoreError(f"{database.name} holds no study yet; check the path, or start a study that writes it")
    if version is not None and version > SCHEMA_VERSION:
        raise StoreError(
            f"{database.name} was written by a newer Headwater (schema {version}), and this one reads up to schema "
            f"{SCHEMA_VERSION}; upgrade with pip install --upgrade headwater"
        )
    if database.is_read_only:
        return version or SCHEMA_VERSION
    _create_tables(database, exists=version is not None)
    if version is not None and version < SCHEMA_VERSION:
        with database.writer.begin() as connection:
            migrate(connection)
    return SCHEMA_VERSION


def _read_version(database: Database) -> int | None:
    with database.reader.connect() as connection:
        _refuse_programs(connection, database)
        tables = inspect(connection).get_table_names()
        if VERSIONS.name in tables:
            versions = connection.execute(select(VERSIONS.c.version)).scalars().all()
            if len(versions) != 1 or not isinstance(versions[0], int):
                raise StoreError(
                    f"{database.name} is damaged: its schema version is {versions!r:.60}, where one number belongs; "
                    "put a copy of the record in its place"
                )
            return versions[0]
    if tables:
        raise StoreError(
            f"{database.name} belongs to another program (it has a table {min(tables)!r}); "
            "give the path of a new file, or an empty database"
        )
    return None


def _refuse_programs(connection: Connection, database: Database) -> None:
    """Refuse a SQLite file with SQL of a stranger that our queries would run, without end perhaps.

    These are views, triggers, virtual tables, and expressions in our tables and indexes (computed columns, checks). A
    server is the user's own, and others may keep views there.
    """
    if database.writer.dialect.name != "sqlite":
        return
    for kind, name, table, sql in connection.exec_driver_sql("SELECT type, name, tbl_name, sql FROM sqlite_master"):
        is_ours = table in METADATA.tables
        is_plain = sql is None or (isinstance(sql, str) and _PLAIN_SQL.fullmatch(sql) is not None)
        if kind in ("view", "trigger") or (is_ours and not is_plain):
            raise StoreError(
                f"{database.name} has a {kind} named {name!r:.60} with SQL that no record of Headwater has, so it is "
                "not opened: reading or changing it would run what somebody else has written"
            )


def _create_tables(database: Database, *, exists: bool) -> None:
    """Make what is missing. The insert runs in any case: it shows at once whether we may write."""
    try:
        with database.writer.begin() as connection:
            if not exists:
                METADATA.create_all(connection)
            connection.execute(insert_once(VERSIONS, database.writer), {"id": 1, "version": SCHEMA_VERSION})
    except DBAPIError:
        # Another process that opened the same new database may have been faster.
        if exists or _read_version(database) is None:
            raise
