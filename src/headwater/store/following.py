"""What has come into the record of a study since somebody last looked, for those who follow it while it is written.

Rows are only ever added. In SQLite every row has a number that grows; where reports have none, their time serves, with
an overlap for writers whose clock or whose commit is late: whoever follows must be able to hear a report twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, literal_column, select

from headwater.store.schema import FACTS, NOTES, REPORTS, SPANS, TRANSITIONS, TRIALS
from headwater.store.store import Store

OVERLAP_S = 30.0
"""So much is read again where rows have no number."""

Rows = Sequence[Sequence[Any]]  # Any: columns, whose types the tables state


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Up to where somebody has followed a study: a place in each table."""

    trials: float = -1
    reports: float = -1
    transitions: float = -1
    notes: float = -1
    facts: float = -1
    spans: float = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Rows that came since a mark, each with its place at the end; nothing in them is checked yet."""

    mark: Mark
    trials: Rows
    """Number, configuration, time."""
    reports: Rows
    """Number, epoch, metrics, time; perhaps some that were heard before."""
    transitions: Rows
    """Number, status, epoch, error, seconds, time."""
    notes: Rows
    """Kind, text, number."""
    has_facts: bool
    has_spans: bool


_FOLLOWED: dict[Table, tuple[str, ...]] = {
    TRIALS: ("number", "config", "created"),
    REPORTS: ("number", "epoch", "metrics", "time"),
    TRANSITIONS: ("number", "status", "epoch", "error", "seconds", "time"),
    NOTES: ("kind", "text", "number"),
}


def read_news(store: Store, study_id: int, stages: Sequence[int], mark: Mark) -> News:
    """Return what is new in a study since `mark`, all of one moment; of spans, those of its stages count too."""
    places = {table: _find_place(store, table) for table in _FOLLOWED}
    marks = {TRIALS: mark.trials, REPORTS: mark.reports, TRANSITIONS: mark.transitions, NOTES: mark.notes}
    queries: list[Select[Any]] = []  # Any: see Rows
    for table, names in _FOLLOWED.items():
        place = places[table]
        since = marks[table] - (0 if _is_number(store, table) else OVERLAP_S)
        # What is new are the last rows of the table; left to itself, SQLite would go through all rows of the study.
        of_study = table.c.study_id if since < 0 or not _is_number(store, table) else table.c.study_id + 0
        query = select(*(table.c[name] for name in names), place).where(of_study == study_id, place > since)
        queries.append(query.order_by(*([place] if _is_number(store, table) else table.primary_key)))
    queries.append(select(func.max(FACTS.c.sequence)).where(FACTS.c.study_id == study_id))
    if store.database.version >= 3:
        queries.append(select(func.max(SPANS.c.sequence)).where(SPANS.c.study_id.in_([study_id, *stages])))
    trials, reports, transitions, notes, *last = store.select(*queries)
    facts, spans = (_read_last(last[which]) if which < len(last) else -1 for which in (0, 1))
    reached = {
        name: max(getattr(mark, name), max((row[-1] for row in found), default=-1))
        for name, found in (("trials", trials), ("reports", reports), ("transitions", transitions), ("notes", notes))
    }
    return News(
        mark=replace(mark, **reached, facts=facts, spans=spans),
        trials=trials,
        reports=reports,
        transitions=transitions,
        notes=notes,
        has_facts=facts != mark.facts,
        has_spans=spans != mark.spans,
    )


def _is_number(store: Store, table: Table) -> bool:
    return store.database.reader.dialect.name == "sqlite" or "sequence" in table.c


def _find_place(store: Store, table: Table) -> ColumnElement[Any]:  # Any: a whole number or a time
    """Return what rows of a table are ordered by."""
    if "sequence" in table.c:
        return table.c.sequence
    if store.database.reader.dialect.name == "sqlite":
        return literal_column(f"{table.name}.rowid")
    return table.c.created if table is TRIALS else table.c.time


def _read_last(rows: Rows) -> float:
    value = rows[0][0] if rows else None
    return -1 if value is None else float(value)
