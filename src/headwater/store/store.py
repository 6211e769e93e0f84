"""The store: typed, append-only access to the record of studies and their trials."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Dialect, Select, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from headwater.errors import NameTakenError, StoreError
from headwater.store import rows
from headwater.store.encoding import encode_json
from headwater.store.engine import Database, explain_failure, insert_once, open_database, prepare, prepare_insert
from headwater.store.rows import Decode
from headwater.store.runner import Runner
from headwater.store.schema import FACTS, LEASES, NOTES, REPORTS, SPANS, STUDIES, TRANSITIONS, TRIALS
from headwater.store.values import Batch, Note, StudyInfo
from headwater.trials import Arrival, Lane, Span, Status, TrialRecord

T = TypeVar("T")

LARGEST_FENCE = 2**62
"""Beyond it, SQLite would go on counting in floats."""


def open_store(url: str | Path | None = None, *, create: bool = True, clock: Callable[[], float] = time.time) -> Store:
    """Open the record at `url`: a path, an `sqlite:///` or `postgresql://` URL; None or "memory:" keeps it in memory.

    With `create=False` the store is for reading only: it must be there already, no file is made or changed, and a
    study that is running elsewhere is never held up.

    Raises:
        StoreError: There is no such store, or it cannot be used as asked; the message says what can be done.
    """
    return Store(open_database(url, create=create), clock)


_SELECT_LEASE = (
    select(LEASES.c.fence, LEASES.c.host, LEASES.c.pid)
    .where(LEASES.c.study_id == bindparam("study"))
    .with_for_update(read=True)
)
"""Every write asks."""


class Store:
    """The append-only record of studies. One process writes a study; any number may read it meanwhile.

    Every call is one transaction: after a crash the record holds everything that a call wrote, or nothing of it. Every
    reading call shows one moment. All raise StoreError where the database refuses, and the message says what to do.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._driver = database.driver
        dialect: Callable[[], Dialect] = type(database.writer.dialect)
        self._add_trials = prepare_insert(TRIALS, dialect)
        self._add_reports = prepare_insert(REPORTS, dialect, once=True)
        self._add_transitions = prepare_insert(TRANSITIONS, dialect)
        self._add_notes = prepare_insert(NOTES, dialect)
        self._add_spans = prepare_insert(SPANS, dialect)
        self._find_lease, self._arrange = prepare(_SELECT_LEASE, dialect)
        self._late: deque[tuple[int, Batch, float]] = deque()

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
        conflict = (
            f"the record has a study named {info.name!r} already; go on with it by study.run(..., resume='auto') or "
            f"`headwater run FILE --resume auto`, give the new study another name, or remove the old one with "
            f"`headwater rm {shlex.quote(info.name)} --storage {shlex.quote(self._database.name)}`"
        )
        with self._writing(conflict, refusal=NameTakenError) as connection:
            key = connection.execute(insert(STUDIES), rows.write_study(info, self._clock())).inserted_primary_key
        assert key is not None
        return int(key[0])

    def create_numbered(self, info: StudyInfo, base: str) -> StudyInfo:
        """Record a new study as `base`-1, or the next number that is free; of two at once, each gets its own."""
        while True:
            with self._reading() as connection:
                taken = set(connection.execute(select(STUDIES.c.name)).scalars())
            name = next(name for number in count(1) if (name := f"{base}-{number}") not in taken)
            with suppress(NameTakenError):
                self.create_study(replace(info, name=name))
                return self.study(name)

    def discard_unreported(self, study_id: int, *, fence: int) -> None:
        """Take a study out again of which nothing was reported; one that has reports stays."""
        self._catch_up()
        with self._writing(f"study {study_id} is not in the store", study_id, fence) as connection:
            if connection.execute(select(REPORTS.c.epoch).where(REPORTS.c.study_id == study_id).limit(1)).first():
                return
            for table in (FACTS, NOTES, TRANSITIONS, SPANS, TRIALS, LEASES):
                connection.execute(delete(table).where(table.c.study_id == study_id))
            connection.execute(delete(STUDIES).where(STUDIES.c.id == study_id))

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open it too."""
        return self._database.is_shared

    @property
    def path(self) -> Path | None:
        """The file; None for a server, and in memory."""
        return self._database.path

    def identify(self) -> str:
        """Return what tells this database from a copy of it."""
        try:
            return self._database.identify()
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error

    def read_lease(self, study_id: int) -> Runner | None:
        """Return who holds the lease of a study, None if nobody does."""
        if self._database.version < 2:
            return None
        names = ("holder", "host", "pid", "process", "fence", "beat")
        query = select(*(LEASES.c[name] for name in names)).where(LEASES.c.study_id == study_id)
        with self._reading() as connection:
            row = connection.execute(query.where(LEASES.c.holder.is_not(None))).mappings().first()
        try:
            return None if row is None else rows.read_lease({**row})
        except StoreError as error:
            raise StoreError(f"it cannot be told who runs study {study_id}: of its lease, {error}") from error

    def take_lease(self, study_id: int, runner: Runner, *, instead_of: Runner | None) -> int | None:
        """Give the lease to a process, and return its fence; None if it is no longer as `instead_of` had it."""
        seen: ColumnElement[bool] = LEASES.c.holder.is_(None)
        if instead_of is not None:
            seen = (LEASES.c.fence == instead_of.fence) & (LEASES.c.beat == instead_of.beat)
        names = {"holder": runner.holder, "host": runner.host, "pid": runner.pid, "process": runner.process}
        mine = LEASES.c.study_id == study_id
        with self._writing(f"study {study_id} is not in the store") as connection:
            row = {"study_id": study_id, "fence": 0, "beat": 0}
            connection.execute(insert_once(LEASES, self._database.writer), row)
            taken = update(LEASES).where(mine, seen).values(fence=LEASES.c.fence + 1, beat=0, **names)
            if connection.execute(taken).rowcount == 0:
                return None
            fence = connection.execute(select(LEASES.c.fence).where(mine)).scalar_one()
            if not isinstance(fence, int) or not 0 < fence < LARGEST_FENCE:
                raise StoreError(f"the lease of study {study_id} is damaged: its fence is {fence!r:.40}")
            return fence

    def beat_lease(self, study_id: int, fence: int) -> None:
        """Show that the holder lives."""
        self._change_lease(study_id, fence, beat=LEASES.c.beat + 1)

    def release_lease(self, study_id: int, fence: int) -> None:
        """Let another process have the lease, unless one has it already."""
        self._change_lease(study_id, fence, holder=None)

    def _change_lease(self, study_id: int, fence: int, **values: Any) -> None:  # Any: a column's value, or SQL
        with self._writing(f"study {study_id} is not in the store") as connection:
            mine = (LEASES.c.study_id == study_id) & (LEASES.c.fence == fence)
            connection.execute(update(LEASES).where(mine).values(**values))

    def studies(self, damaged: list[str] | None = None) -> list[StudyInfo]:
        """Return every study, the oldest first; what cannot be read is left out.

        Here and below, `damaged` takes a line about each row that is not what it must be.
        """
        with self._reading() as connection:
            found = connection.execute(self._select_studies()).mappings().all()
        reads = [(f"study {row['name']!r:.60}", partial(rows.read_study, {**row})) for row in found]
        return _read_sound(reads, damaged)

    def _select_studies(self) -> Select[Any]:  # Any: see rows.Values
        columns = [column for column in STUDIES.c if self._database.version >= 2 or column is not STUDIES.c.uuid]
        return select(*columns).order_by(STUDIES.c.id)

    def study(self, name: str | None = None) -> StudyInfo:
        """Return the study called `name`, or the newest one that is not a stage of another."""
        damaged: list[str] = []
        studies = self.studies(damaged)
        if not studies and not damaged:
            raise StoreError(f"{self._database.name} holds no study yet; start one first")
        for info in reversed(studies):
            if info.name == name or (name is None and info.settings.get("part_of") is None):
                return info
        names = ", ".join(repr(info.name) for info in studies[-10:]) or "none that can be read"
        also = "".join(f"; {line}" for line in damaged[:10])
        raise StoreError(f"{self._database.name} holds no study named {name!r}; there are {names}{also}")

    def add_trials(self, study_id: int, lanes: Sequence[Lane], *, fence: int | None = None) -> None:
        """Record new trials, with configurations that JSON can hold. A trial comes before all that is written about it.

        Here and below, `fence` is that of the lease which the writer holds: once another has it, the write is refused.
        """
        now = self._clock()
        values = [rows.write_trial(study_id, lane, now) for lane in lanes]
        numbers = ", ".join(str(lane.number) for lane in lanes[:10])
        conflict = f"cannot add trials {numbers}: study {study_id} has one of them already, or is not in the store"
        with self._writing(conflict, study_id, fence) as connection:
            self._add_trials(connection.connection.cursor(), values)

    def write(self, study_id: int, batch: Batch, *, fence: int | None = None) -> None:
        """Record a batch in one transaction.

        Of two reports on the same epoch of a trial the first stays: an epoch that was trained again after a crash
        may be reported again. Transitions and notes are all kept, in the order of writing.
        """
        conflict = f"study {study_id} lacks a trial that this batch is about; add_trials comes first"
        with self._writing(conflict, study_id, fence) as connection:
            self._insert_batches(connection, [(study_id, batch, self._clock())])

    def write_late(self, study_id: int, batch: Batch) -> None:
        """Record a batch in memory, together with others before anything is read: thousands in one transaction.

        Only for a store that no other process can open, of which a crash leaves nothing in any case.
        """
        assert not self.is_shared
        self._late.append((study_id, batch, self._clock()))

    def _catch_up(self) -> None:
        """Write what came late."""
        if not self._late:
            return
        with self._writing("a study lacks a trial that a batch is about; add_trials comes first") as connection:
            batches = []
            while self._late:
                batches.append(self._late.popleft())
            self._insert_batches(connection, batches)

    def _insert_batches(self, connection: Connection, batches: Sequence[tuple[int, Batch, float]]) -> None:
        """Insert batches of studies, each with its time."""
        reports = [row for key, batch, now in batches for row in rows.write_reports(key, batch.reports, now)]
        moves = [rows.write_transition(key, move, now) for key, batch, now in batches for move in batch.transitions]
        notes = [rows.write_note(key, note, now) for key, batch, now in batches for note in batch.notes]
        spans = [rows.write_span(key, span) for key, batch, now in batches for span in batch.spans]
        cursor = connection.connection.cursor()
        self._add_reports(cursor, reports)
        self._add_transitions(cursor, moves)
        self._add_notes(cursor, notes)
        self._add_spans(cursor, spans)

    def trials(
        self, study_id: int, decode: Decode | None = None, damaged: list[str] | None = None
    ) -> list[TrialRecord]:
        """Return every trial by number; configurations are the stored JSON values unless `decode` turns them back.

        A trial that cannot be read is an error, unless `damaged` takes it.
        """
        with self._reading() as connection:  # as the driver has the rows: there are many, and they are read once
            tables = [connection.execute(query).cursor.fetchall() for query in rows.select_trials(study_id)]
        return rows.read_trials(*tables, decode=decode, damaged=damaged)

    def arrivals(self, study_id: int) -> list[Arrival]:
        """Return where segments of trials ended, in the order in which it was recorded."""
        columns = (TRANSITIONS.c.number, TRANSITIONS.c.epoch, TRANSITIONS.c.status)
        ends = (TRANSITIONS.c.study_id == study_id) & (TRANSITIONS.c.status != Status.RUNNING.value)
        (found,) = self.select(select(*columns).where(ends).order_by(TRANSITIONS.c.sequence))
        return _read_sound([("the end of a segment", partial(rows.read_arrival, *row)) for row in found])

    def notes(self, study_id: int, damaged: list[str] | None = None) -> list[Note]:
        """Return every note on the study and on its trials, in the order of writing."""
        columns = (NOTES.c.kind, NOTES.c.text, NOTES.c.number)
        (found,) = self.select(select(*columns).where(NOTES.c.study_id == study_id).order_by(NOTES.c.sequence))
        return _read_sound([("a note", partial(rows.read_note, *row)) for row in found], damaged)

    def spans(self, info: StudyInfo) -> list[Span]:
        """Return which trials of a study sat on which device, in the order in which they left it."""
        if self._database.version < 3:
            return []
        names = ("device", "purpose", "trials", "begin_s", "end_s")
        query = select(*(SPANS.c[name] for name in names)).where(SPANS.c.study_id == info.id)
        (found,) = self.select(query.order_by(SPANS.c.sequence))
        return _read_sound([("a span", partial(rows.read_span, info.name, row._asdict())) for row in found], [])

    def add_fact(self, study_id: int, key: str, value: Any, *, fence: int | None = None) -> None:  # Any: a JSON value
        """Record a measurement or a choice, such as the number of lanes; earlier values under `key` stay below it."""
        row = {"study_id": study_id, "key": key, "value": encode_json(value), "time": self._clock()}
        conflict = f"cannot add the fact {key!r}: study {study_id} is not in the store"
        with self._writing(conflict, study_id, fence) as connection:
            connection.execute(insert(FACTS), row)

    def facts(self, study_id: int, damaged: list[str] | None = None) -> dict[str, Any]:  # Any: JSON values
        """Return the latest value under each key."""
        query = select(FACTS.c.key, FACTS.c.value).where(FACTS.c.study_id == study_id).order_by(FACTS.c.sequence)
        (found,) = self.select(query)
        return dict(_read_sound([("a fact", partial(rows.read_fact, *row)) for row in found], damaged))

    def find_studies(self, key: str, value: Any) -> list[StudyInfo]:  # Any: a JSON value
        """Return the studies of which a fact says this, the newest first."""
        query = select(FACTS.c.study_id).where(FACTS.c.key == key, FACTS.c.value == encode_json(value))
        (found,) = self.select(query)
        return [info for info in reversed(self.studies()) if (info.id,) in found]

    def fact(self, study_id: int, key: str) -> Any:  # Any: a JSON value
        """Return the latest value under one key, None if there is none; cheap enough to ask every second."""
        query = select(FACTS.c.value).where(FACTS.c.study_id == study_id, FACTS.c.key == key)
        with self._reading() as connection:
            value = connection.execute(query.order_by(FACTS.c.sequence.desc()).limit(1)).scalar()
        return None if value is None else dict(_read_sound([("a fact", partial(rows.read_fact, key, value))])).get(key)

    def facts_after(self, study_id: int, key: str, sequence: int) -> list[tuple[int, Any]]:  # Any: JSON values
        """Return all values under one key that were written after one, each with its place in the order of writing."""
        chosen = (FACTS.c.study_id == study_id) & (FACTS.c.key == key) & (FACTS.c.sequence > sequence)
        query = select(FACTS.c.sequence, FACTS.c.value).where(chosen).order_by(FACTS.c.sequence)
        (found,) = self.select(query)
        return [
            (place, dict(_read_sound([("a fact", partial(rows.read_fact, key, value))])).get(key))
            for place, value in found
        ]

    def times(self, study_id: int) -> dict[int, tuple[float, float]]:
        """Return when each trial entered the record and when its status last changed, in seconds since 1970."""
        same = (TRANSITIONS.c.study_id == TRIALS.c.study_id) & (TRANSITIONS.c.number == TRIALS.c.number)
        query = (
            select(TRIALS.c.number, TRIALS.c.created, func.max(TRANSITIONS.c.time))
            .select_from(TRIALS.outerjoin(TRANSITIONS, same))
            .where(TRIALS.c.study_id == study_id)
            .group_by(TRIALS.c.number, TRIALS.c.created)
        )
        (found,) = self.select(query)
        return {number: (created, created if changed is None else changed) for number, created, changed in found}

    def select(self, *queries: Select[Any]) -> list[Sequence[Any]]:  # Any: see rows.Values
        """Return what queries find, all of one moment: for the other modules of this package."""
        with self._reading() as connection:
            return [connection.execute(query).all() for query in queries]

    @property
    def database(self) -> Database:
        """What it is kept in."""
        return self._database

    @contextmanager
    def _writing(
        self, conflict: str, study_id: int = 0, fence: int | None = None, refusal: type[StoreError] = StoreError
    ) -> Iterator[Connection]:
        if self._database.is_read_only:
            raise StoreError(f"{self._database.name} was opened for reading; open it with create=True to write")
        try:
            with self._database.writer.begin() as connection:
                if fence is not None:
                    self._require_lease(connection, study_id, fence)
                yield connection
                self._database.require_present()
        except (IntegrityError, self._driver.IntegrityError) as error:
            raise refusal(conflict) from (error if refusal is StoreError else None)
        except (DBAPIError, self._driver.Error) as error:
            raise StoreError(explain_failure(error, self._database)) from error

    def _require_lease(self, connection: Connection, study_id: int, fence: int) -> None:
        """Raise unless the lease is still that of this fence; until the transaction ends, nobody can take it."""
        cursor = connection.connection.cursor()
        cursor.execute(self._find_lease, self._arrange({"study": study_id}))
        held, host, pid = cursor.fetchone() or (None, None, None)
        if held != fence:
            other = "nobody" if held is None else f"process {pid} on {host}"
            raise StoreError(
                f"this run has lost its study to {other}, which took over because this one had been silent; it ends "
                "here, with nothing written since, and the other goes on"
            )

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._catch_up()
        try:
            with self._database.reader.begin() as connection:
                yield connection
                self._database.require_present()
        except DBAPIError as error:
            raise StoreError(explain_failure(error, self._database)) from error


def _read_sound(reads: Sequence[tuple[str, Callable[[], T]]], damaged: list[str] | None = None) -> list[T]:
    """Return what rows hold; those that are not what they must be are left out, which `damaged` is told."""
    sound = []
    for what, read in reads:
        try:
            sound.append(read())
        except StoreError as error:
            if damaged is not None:
                damaged.append(f"{what} is left out: {error}")
    return sound
