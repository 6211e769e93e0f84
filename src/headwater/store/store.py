"""The store: typed, append-only access to the record of studies and their trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Insert, func, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from headwater.errors import StoreError
from headwater.store import rows
from headwater.store.encoding import decode_json, encode_json
from headwater.store.engine import Database, explain_failure, insert_once, open_database
from headwater.store.rows import Decode, Values
from headwater.store.schema import FACTS, NOTES, REPORTS, STUDIES, TRANSITIONS, TRIALS
from headwater.store.values import Batch, NewTrial, Note, StudyInfo
from headwater.trials import TrialRecord


def open_store(url: str | Path | None = None, *, create: bool = True, clock: Callable[[], float] = time.time) -> Store:
    """Open the record at `url`: a path, an `sqlite:///` or `postgresql://` URL; None or "memory:" keeps it in memory.

    With `create=False` the store is for reading only: it must be there already, no file is made or changed, and a
    study that is running elsewhere is never held up.

    Raises:
        StoreError: There is no such store, or it cannot be used as asked; the message says what can be done.
    """
    return Store(open_database(url, create=create), clock)


class Store:
    """The append-only record of studies. One process writes a study; any number may read it meanwhile.

    Every call is one transaction: after a crash the record holds everything that a call wrote, or nothing of it. Every
    reading call shows one moment. All raise StoreError where the database refuses, and the message says what to do.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._insert_reports = insert_once(REPORTS, database.writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; a store in memory is gone then."""
        self._database.writer.dispose()

    def create_study(self, info: StudyInfo) -> int:
        """Record a new study and return its id; `id` and `created` of `info` are not read."""
        conflict = f"there is a study named {info.name!r} already; resume it, or give the new one another name"
        with self._writing(conflict) as connection:
            key = connection.execute(insert(STUDIES), rows.write_study(info, self._clock())).inserted_primary_key
        assert key is not None
        return int(key[0])

    def studies(self) -> list[StudyInfo]:
        """Return every study, the oldest first."""
        with self._reading() as connection:
            found = connection.execute(select(STUDIES).order_by(STUDIES.c.id)).mappings().all()
        return [rows.read_study({**row}) for row in found]

    def study(self, name: str | None = None) -> StudyInfo:
        """Return the study called `name`, or the newest one that is not a stage of another."""
        studies = self.studies()
        if not studies:
            raise StoreError(f"{self._database.name} holds no study yet; start one first")
        for info in reversed(studies):
            if info.name == name or (name is None and info.settings.get("part_of") is None):
                return info
        names = ", ".join(repr(info.name) for info in studies[-10:])
        raise StoreError(f"{self._database.name} holds no study named {name!r}; there are {names}")

    def add_trials(self, study_id: int, trials: Sequence[NewTrial]) -> None:
        """Record new trials. A trial comes before anything that is written about it."""
        now = self._clock()
        values = [rows.write_trial(study_id, trial, now) for trial in trials]
        numbers = ", ".join(str(trial.number) for trial in trials[:10])
        conflict = f"cannot add trials {numbers}: study {study_id} has one of them already, or is not in the store"
        with self._writing(conflict) as connection:
            _insert(connection, insert(TRIALS), values)

    def write(self, study_id: int, batch: Batch) -> None:
        """Record a batch in one transaction.

        Of two reports on the same epoch of a trial the first stays: an epoch that was trained again after a crash
        may be reported again. Transitions and notes are all kept, in the order of writing.
        """
        now = self._clock()
        reports = [rows.write_report(study_id, report, now) for report in batch.reports]
        transitions = [rows.write_transition(study_id, transition, now) for transition in batch.transitions]
        notes = [rows.write_note(study_id, note, now) for note in batch.notes]
        conflict = f"study {study_id} lacks a trial that this batch is about; add_trials comes first"
        with self._writing(conflict) as connection:
            _insert(connection, self._insert_reports, reports)
            _insert(connection, insert(TRANSITIONS), transitions)
            _insert(connection, insert(NOTES), notes)

    def trials(self, study_id: int, decode: Decode | None = None) -> list[TrialRecord]:
        """Return every trial by number; configurations are the stored JSON values unless `decode` turns them back."""
        return self._read_trials(study_id, None, decode)

    def trial(self, study_id: int, number: int, decode: Decode | None = None) -> TrialRecord:
        """Return one trial."""
        records = self._read_trials(study_id, number, decode)
        if not records:
            raise StoreError(f"study {study_id} has no trial {number}; trials() lists those there are")
        return records[0]

    def notes(self, study_id: int) -> list[Note]:
        """Return every note on the study and on its trials, in the order of writing."""
        columns = (NOTES.c.kind, NOTES.c.text, NOTES.c.number)
        query = select(*columns).where(NOTES.c.study_id == study_id).order_by(NOTES.c.sequence)
        with self._reading() as connection:
            return [Note(kind=kind, text=text, number=number) for kind, text, number in connection.execute(query)]

    def add_fact(self, study_id: int, key: str, value: Any) -> None:  # Any: a JSON value
        """Record a measurement or a choice, such as the number of lanes; earlier values under `key` stay below it."""
        row = {"study_id": study_id, "key": key, "value": encode_json(value), "time": self._clock()}
        with self._writing(f"cannot add the fact {key!r}: study {study_id} is not in the store") as connection:
            connection.execute(insert(FACTS), row)

    def facts(self, study_id: int) -> dict[str, Any]:  # Any: JSON values
        """Return the latest value under each key."""
        query = select(FACTS.c.key, FACTS.c.value).where(FACTS.c.study_id == study_id).order_by(FACTS.c.sequence)
        with self._reading() as connection:
            return {key: decode_json(value) for key, value in connection.execute(query)}

    def fact(self, study_id: int, key: str) -> Any:  # Any: a JSON value
        """Return the latest value under one key, None if there is none; cheap enough to ask every second."""
        query = select(FACTS.c.value).where(FACTS.c.study_id == study_id, FACTS.c.key == key)
        with self._reading() as connection:
            value = connection.execute(query.order_by(FACTS.c.sequence.desc()).limit(1)).scalar()
        return None if value is None else decode_json(value)

    def times(self, study_id: int) -> dict[int, tuple[float, float]]:
        """Return when each trial entered the record and when its status last changed, in seconds since 1970."""
        same = (TRANSITIONS.c.study_id == TRIALS.c.study_id) & (TRANSITIONS.c.number == TRIALS.c.number)
        query = (
            select(TRIALS.c.number, TRIALS.c.created, func.max(TRANSITIONS.c.time))
            .select_from(TRIALS.outerjoin(TRANSITIONS, same))
            .where(TRIALS.c.study_id == study_id)
            .group_by(TRIALS.c.number, TRIALS.c.created)
        )
        with self._reading() as connection:
            found = connection.execute(query).all()
        return {number: (created, created if changed is None else changed) for number, created, changed in found}

    def _read_trials(self, study_id: int, number: int | None, decode: Decode | None) -> list[TrialRecord]:
        with self._reading() as connection:
            tables = [connection.execute(query).all() for query in rows.select_trials(study_id, number)]
        return rows.read_trials(*tables, decode=decode)

    @contextmanager
    def _writing(self, conflict: str) -> Iterator[Connection]:
        if self._database.is_read_only:
            raise StoreError(f"{self._database.name} was opened for reading; open it with create=True to write")
        try:
            with self._database.writer.begin() as connection:
                yield connection
        except IntegrityError as error:
            raise StoreError(conflict) from error
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._database.reader.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error


def _insert(connection: Connection, statement: Insert, values: Sequence[Values]) -> None:
    """Insert many rows in one call; an empty list would mean one row of defaults."""
    if values:
        connection.execute(statement, values)
