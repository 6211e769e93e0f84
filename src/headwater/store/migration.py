"""From the tables of an older version to those of this one."""

from __future__ import annotations

from uuid import uuid4

from sqlalchemy import Connection, select, text, update

from headwater.store.schema import LEASES, SCHEMA_VERSION, SPANS, STUDIES, VERSIONS


def migrate(connection: Connection) -> None:
    """Bring an older database up to date, within one transaction; whoever comes second finds it done."""
    version = connection.execute(select(VERSIONS.c.version).with_for_update()).scalar_one()
    if version < 2:
        connection.execute(text("ALTER TABLE studies ADD COLUMN uuid TEXT"))
        LEASES.create(connection)
        for study_id in connection.execute(select(STUDIES.c.id)).scalars().all():
            connection.execute(update(STUDIES).where(STUDIES.c.id == study_id).values(uuid=uuid4().hex))
    if version < 3:
        SPANS.create(connection)
    connection.execute(update(VERSIONS).values(version=SCHEMA_VERSION))
