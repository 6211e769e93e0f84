"""What the service keeps: users, the hashes of their tokens, what they submitted, and what became of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from headwater.errors import StoreError, StudyError
from headwater.serve.service.schema import (
    EVENTS,
    METADATA,
    SERVICE_VERSION,
    SERVICES,
    SHARES,
    SUBMISSIONS,
    TOKENS,
    USERS,
)
from headwater.serve.service.tokens import Token, check_user_name, draw_token, hash_token, is_hash_of
from headwater.serve.service.values import Event, Json, Role, State, Submission, User, Wish
from headwater.store.engine import Database, explain_failure, insert_once, open_database

_ENUMS: Mapping[str, Callable[[Any], Any]] = {"state": State, "wish": Wish}  # Any: text
_JSON = ("options", "progress")
_KEPT = tuple(one.name for one in fields(Submission))
PROGRESS = "progress"


class ServiceStore:
    """The tables of one service. Every call is one transaction; all raise StoreError where the database refuses."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        try:
            version = self._create_tables()
        except StoreError:  # another process that opened the same new database may have been faster
            version = self._create_tables()
        if version != SERVICE_VERSION:
            raise StoreError(
                f"{database.name} was written by a service of version {version}, and this one knows {SERVICE_VERSION}; "
                "start the one that it was written by, or give this one another --storage"
            )

    @classmethod
    def open(cls, url: str, clock: Callable[[], float] = time.time) -> Self:
        """Open the tables at a database URL, which makes them where they are missing."""
        before = os.umask(0o077)  # SQLite gives its -wal and -shm files the mode of the database
        try:
            database = open_database(url, create=True)
        finally:
            os.umask(before)
        if not database.is_shared:
            database.writer.dispose()
            raise StudyError("a service cannot be kept in memory; give --storage a path or a database URL")
        if database.path is not None:
            # Files of an earlier release may be readable by submitted studies, which run beside them.
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{database.path}{suffix}").chmod(0o600)
        return cls(database, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._database.writer.dispose()

    def claim(self, host: str, folder: str) -> None:
        """Make this the service of the database.

        Raises:
            StudyError: Its studies are in another place.
        """
        with self._writing() as connection:
            row = connection.execute(select(SERVICES.c.host, SERVICES.c.folder)).one()
            if row.folder is not None and (row.host, row.folder) != (host, folder):
                raise StudyError(
                    f"the studies of {self._database.name} are on {row.host} in {row.folder}, and were asked for on "
                    f"{host} in {folder}; start the service there, or give this one a database of its own"
                )
            connection.execute(update(SERVICES).values(host=host, folder=folder))

    # users and tokens

    def add_user(self, name: str, role: Role, limits: Mapping[str, Any]) -> User:  # Any: numbers
        """Add a user, or change the one there is; `limits` has the settings of a User that are given."""
        check_user_name(name)
        with self._writing() as connection:
            found = connection.execute(select(USERS).where(USERS.c.name == name)).first()
            if found is None:
                user = replace(User(name=name, role=role, place=_find_place(connection)), **limits)
                connection.execute(insert(USERS), _as_columns(user))
            else:
                user = replace(_read_user(found), role=role, **limits)
                connection.execute(update(USERS).where(USERS.c.name == name), _as_columns(user))
        return user

    def create_token(self, user: str, note: str = "") -> str:
        """Return a new token of a user; it cannot be had again."""
        token = draw_token()
        row = {"id": token_hex(4), "hash": hash_token(token), "user": user, "created": self._clock(), "note": note}
        with self._writing() as connection:
            connection.execute(insert(TOKENS), row)
        return token

    def tokens(self) -> list[Token]:
        """Return all tokens there are, the oldest first."""
        with self._reading() as connection:
            rows = connection.execute(select(TOKENS).order_by(TOKENS.c.created)).all()
        return [Token(id=row.id, user=row.user, created=row.created, note=row.note) for row in rows]

    def revoke_tokens(self, which: str, *, note: str | None = None) -> int:
        """Forget a token by its id, or all of a user; with `note`, those alone that carry it."""
        query = delete(TOKENS).where((TOKENS.c.id == which) | (TOKENS.c.user == which))
        with self._writing() as connection:
            return connection.execute(query if note is None else query.where(TOKENS.c.note == note)).rowcount

    def find_user(self, token: str) -> User | None:
        """Return whose token this is."""
        query = select(USERS, TOKENS.c.hash).join(TOKENS, TOKENS.c.user == USERS.c.name)
        with self._reading() as connection:
            row = connection.execute(query.where(TOKENS.c.hash == hash_token(token))).first()
        return _read_user(row) if row is not None and is_hash_of(row.hash, token) else None

    def place_share(self, share: str) -> int:
        """Return the how manieth system user runs studies with these files, of all who share them."""
        query = select(SHARES.c.place).where(SHARES.c.share == share)
        with self._writing() as connection:
            row = connection.execute(query).first()
            if row is None:
                connection.execute(insert(SHARES), {"share": share, "place": _find_place(connection)})
                row = connection.execute(query).one()
            return int(row.place)

    def list_shares(self) -> set[str]:
        """Return the hashes of all files that submissions share with others."""
        with self._reading() as connection:
            return set(connection.execute(select(SUBMISSIONS.c.share).distinct()).scalars())

    def users(self) -> list[User]:
        """Return all users."""
        with self._reading() as connection:
            return [_read_user(row) for row in connection.execute(select(USERS).order_by(USERS.c.place)).all()]

    def used_device_s(self) -> dict[str, float]:
        """Return how many device-seconds the studies of each user have had."""
        query = select(SUBMISSIONS.c.user, func.sum(SUBMISSIONS.c.device_seconds)).group_by(SUBMISSIONS.c.user)
        with self._reading() as connection:
            return {user: float(seconds) for user, seconds in connection.execute(query).all()}

    # submissions

    def add(self, submission: Submission, key: str, body: str) -> Submission:
        """Keep a new submission, or return the one that was made with the same key; `body` is a hash of what was asked.

        Raises:
            StudyError: The key was used for something else.
        """
        row = {**_as_row({name: getattr(submission, name) for name in _KEPT}), "key": key, "body": body}
        query = select(SUBMISSIONS).where(SUBMISSIONS.c.user == submission.user, SUBMISSIONS.c.key == key)
        with self._writing() as connection:
            connection.execute(insert_once(SUBMISSIONS, self._database.writer), row)
            found = connection.execute(query).one()
            if found.id == submission.id:
                self._tell(connection, submission)
        if found.body != body:
            raise StudyError(
                f"the Idempotency-Key {key!r:.60} was sent with another study, {found.id}, before; "
                "draw a new key for each submission"
            )
        return _read_submission(found)

    def find(self, submission: str) -> Submission | None:
        """Return a submission by its id."""
        with self._reading() as connection:
            row = connection.execute(select(SUBMISSIONS).where(SUBMISSIONS.c.id == submission)).first()
        return None if row is None else _read_submission(row)

    def list_submissions(self, user: str | None = None, states: Sequence[State] = ()) -> list[Submission]:
        """Return submissions, the oldest first; of one user, in these states, where that is asked."""
        query = select(SUBMISSIONS).order_by(SUBMISSIONS.c.created, SUBMISSIONS.c.id)
        query = query if user is None else query.where(SUBMISSIONS.c.user == user)
        query = query.where(SUBMISSIONS.c.state.in_(states)) if states else query
        with self._reading() as connection:
            return [_read_submission(row) for row in connection.execute(query).all()]

    def change(self, submission: str, *, kind: str = "state", **changes: Any) -> Submission:  # Any: columns
        """Change a submission and write down the event; of progress, only the last is kept."""
        with self._writing() as connection:
            where = SUBMISSIONS.c.id == submission
            connection.execute(
                update(SUBMISSIONS).where(where).values(version=SUBMISSIONS.c.version + 1, **_as_row(changes))
            )
            changed = _read_submission(connection.execute(select(SUBMISSIONS).where(where)).one())
            if kind == PROGRESS:
                old = (EVENTS.c.submission == submission) & (EVENTS.c.kind == PROGRESS)
                connection.execute(delete(EVENTS).where(old))
            self._tell(connection, changed, kind)
        return changed

    def spend(self, seconds: Mapping[str, float], uses: Mapping[str, tuple[float, float]]) -> None:
        """Add device-seconds that submissions have had, and say by user what is remembered of them, and when."""
        with self._writing() as connection:
            for user, (use_device_s, use_at) in uses.items():
                changed = update(USERS).where(USERS.c.name == user)
                connection.execute(changed.values(use_device_s=use_device_s, use_at=use_at))
            for submission, amount in seconds.items():
                spent = SUBMISSIONS.c.device_seconds + amount
                connection.execute(
                    update(SUBMISSIONS).where(SUBMISSIONS.c.id == submission).values(device_seconds=spent)
                )

    def remove(self, submission: str) -> None:
        """Forget a submission and its events."""
        with self._writing() as connection:
            connection.execute(delete(EVENTS).where(EVENTS.c.submission == submission))
            connection.execute(delete(SUBMISSIONS).where(SUBMISSIONS.c.id == submission))

    # events

    def events_after(
        self, sequence: int, *, user: str | None = None, submission: str | None = None, most: int = 500
    ) -> list[Event]:
        """Return what happened after an event, the oldest first; of one user or submission where that is asked."""
        query = select(EVENTS).where(EVENTS.c.sequence > sequence).order_by(EVENTS.c.sequence).limit(most)
        query = query if user is None else query.where(EVENTS.c.user == user)
        query = query if submission is None else query.where(EVENTS.c.submission == submission)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [Event(**{**row._asdict(), "data": json.loads(row.data)}) for row in rows]

    def last_event(self) -> int:
        """Return the place of the newest event."""
        with self._reading() as connection:
            return int(connection.execute(select(func.coalesce(func.max(EVENTS.c.sequence), 0))).scalar_one())

    def _create_tables(self) -> int:
        with self._writing() as connection:
            METADATA.create_all(connection)
            connection.execute(insert_once(SERVICES, self._database.writer), {"id": 1, "version": SERVICE_VERSION})
            return int(connection.execute(select(SERVICES.c.version)).scalar_one())

    def _tell(self, connection: Connection, submission: Submission, kind: str = "state") -> None:
        row: Json = {"submission": submission.id, "user": submission.user, "kind": kind, "time": self._clock()}
        connection.execute(insert(EVENTS), {**row, "data": json.dumps(submission.as_json())})

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._database.writer.begin() as connection:
                yield connection
                self._database.require_present()
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._database.reader.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error


def _find_place(connection: Connection) -> int:
    """Return the first system user that nobody has."""
    last = [connection.execute(select(func.max(table.c.place))).scalar_one() for table in (USERS, SHARES)]
    return max((place for place in last if place is not None), default=-1) + 1


def _as_columns(user: User) -> Json:
    return {one.name: getattr(user, one.name) for one in fields(User)}


def _read_user(row: Row[Any]) -> User:  # Any: columns
    values = {one.name: getattr(row, one.name) for one in fields(User)}
    return User(**{**values, "role": Role(values["role"])})


def _as_row(values: Mapping[str, Any]) -> Json:  # Any: columns
    return {name: json.dumps(dict(value)) if name in _JSON else value for name, value in values.items()}


def _read_submission(row: Row[Any]) -> Submission:  # Any: columns
    values = {name: getattr(row, name) for name in _KEPT}
    values |= {name: json.loads(values[name]) for name in _JSON}
    return Submission(**{**values, **{name: read(values[name]) for name, read in _ENUMS.items()}})
