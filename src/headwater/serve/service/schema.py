"""The tables of the service. They stand beside those of a record, in the same database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text, UniqueConstraint

METADATA = MetaData()

SERVICE_VERSION = 2

# SQLite numbers rows by itself only in a primary key of type INTEGER, which holds 64 bits there.
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")

SERVICES = Table(
    "service",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("host", Text),
    Column("folder", Text),
)

USERS = Table(
    "service_users",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("place", Integer, nullable=False, unique=True),
    Column("weight", Double, nullable=False),
    Column("min_devices", Integer, nullable=False),
    Column("max_devices", Integer),
    Column("budget_device_s", Double),
    Column("use_device_s", Double, nullable=False),
    Column("use_at", Double, nullable=False),
)

TOKENS = Table(
    "service_tokens",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("user", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("note", Text, nullable=False),
)

SUBMISSIONS = Table(
    "service_submissions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("deadline", Double),
    Column("budget_device_s", Double),
    Column("max_devices", Integer),
    Column("place", Integer, nullable=False),
    Column("share", Text, nullable=False),
    Column("wish", Text, nullable=False),
    Column("wished", Double),
    Column("reason", Text, nullable=False),
    Column("num_deaths", Integer, nullable=False),
    Column("num_devices", Integer, nullable=False),
    Column("device_seconds", Double, nullable=False),
    Column("started", Double),
    Column("ended", Double),
    Column("version", BigInteger, nullable=False),
    Column("progress", Text, nullable=False),
    UniqueConstraint("user", "key"),
    Index("service_submissions_by_state", "state"),
)

SHARES = Table(
    "service_shares",
    METADATA,
    Column("share", Text, primary_key=True),
    Column("place", Integer, nullable=False, unique=True),
)
"""Which system user runs studies of several users that were submitted with the same files."""

EVENTS = Table(
    "service_events",
    METADATA,
    Column("sequence", _SEQUENCE, primary_key=True),
    Column("submission", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("time", Double, nullable=False),
    Index("service_events_by_submission", "submission"),
    sqlite_autoincrement=True,
)
