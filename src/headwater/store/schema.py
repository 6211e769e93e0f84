"""The tables. Rows are added and never changed, but for leases; JSON is text, kept by every database as written."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

SCHEMA_VERSION = 3
"""Raised by one whenever a table changes, with a step in `migration`; a higher one is refused, never guessed at."""

SEQUENCE = "sequence"
"""The column by which a database itself numbers rows, in the order of writing."""

METADATA = MetaData()

# SQLite numbers rows by itself only in a primary key of type INTEGER, which holds 64 bits there.
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")

VERSIONS = Table(
    "headwater_schema_version",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

STUDIES = Table(
    "studies",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("metric", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("space", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("uuid", Text),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("study_id", ForeignKey("studies.id"), primary_key=True),
    Column("fence", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("holder", Text),
    Column("host", Text),
    Column("pid", BigInteger),
    Column("process", Text),
)

TRIALS = Table(
    "trials",
    METADATA,
    Column("study_id", ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("config", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
)

REPORTS = Table(
    "reports",
    METADATA,
    Column("study_id", Integer),
    Column("number", Integer),
    Column("epoch", Integer, autoincrement=False),
    Column("metrics", Text, nullable=False),
    Column("time", Double, nullable=False),
    # By epoch first: what a group reports together lies together, and not on as many pages as it has lanes. In records
    # of earlier versions numbers come first, which nothing depends on.
    PrimaryKeyConstraint("study_id", "epoch", "number"),
    ForeignKeyConstraint(["study_id", "number"], ["trials.study_id", "trials.number"]),
)

TRANSITIONS = Table(
    "transitions",
    METADATA,
    Column(SEQUENCE, _SEQUENCE, primary_key=True),
    Column("study_id", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("error", Text),
    Column("seconds", Double, nullable=False, default=0.0),
    Column("time", Double, nullable=False),
    ForeignKeyConstraint(["study_id", "number"], ["trials.study_id", "trials.number"]),
    Index("transitions_by_trial", "study_id", "number"),
)

NOTES = Table(
    "notes",
    METADATA,
    Column(SEQUENCE, _SEQUENCE, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("number", Integer),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("time", Double, nullable=False),
    ForeignKeyConstraint(["study_id", "number"], ["trials.study_id", "trials.number"]),
    Index("notes_by_trial", "study_id", "number"),
)

FACTS = Table(
    "facts",
    METADATA,
    Column(SEQUENCE, _SEQUENCE, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("time", Double, nullable=False),
    Index("facts_by_study", "study_id"),
)

SPANS = Table(
    "spans",
    METADATA,
    Column(SEQUENCE, _SEQUENCE, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("device", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("trials", Text, nullable=False),
    Column("begin_s", Double, nullable=False),
    Column("end_s", Double, nullable=False),
    Index("spans_by_study", "study_id"),
)
