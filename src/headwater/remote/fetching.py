"""The copy of a study that a service sends: unpacked beside each other, a record and its states like any other."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from tempfile import TemporaryFile

from headwater.errors import ServiceError
from headwater.execute.service import Service

RECORD = "record.db"
_STATE = re.compile(r"record\.db\.states/([\w.-]{1,120})/(best-\d{1,18}-\d{1,18}\.safetensors)")


def fetch_study(service: Service, study: str, record: Path, *, with_weights: bool) -> None:
    """Write the record of a study to a path, and its best weights where such a record has them.

    Raises:
        ServiceError: It cannot be had, or is not what it must be.
    """
    with TemporaryFile() as file:
        service.fetch(study, file, with_weights=with_weights)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for member in archive:
                    _unpack(archive, member, record)
        except tarfile.TarError as error:
            raise ServiceError(f"what {service.shown} sent of study {study} cannot be read: {error}") from error


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, record: Path) -> None:
    """Write one file to its place, if it is one of those that belong to a record; no name leads anywhere else."""
    found = _STATE.fullmatch(member.name)
    # A sparse file of a few bytes could be unpacked to any size.
    if not member.isfile() or member.issparse() or not (found or member.name == RECORD):
        raise ServiceError(f"the copy of a study has {member.name!r:.60}, which belongs to none")
    place = record if found is None else record.with_name(f"{record.name}.states") / found[1] / found[2]
    if found is not None and found[1].startswith("."):
        raise ServiceError(f"the copy of a study has {member.name!r:.60}, which belongs to none")
    place.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None
    with content, place.open("wb") as file:
        shutil.copyfileobj(content, file)
