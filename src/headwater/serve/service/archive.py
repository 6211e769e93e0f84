"""The copy of a study that a client is sent: its record and the weights kept as the best, as one tar file.

Unpacked side by side, they are read as any record with its states. Run as a module, this writes one.
"""

from __future__ import annotations

import sqlite3
import sys
import tarfile
from contextlib import closing
from pathlib import Path

from headwater.errors import HeadwaterError, StoreError
from headwater.store import find_states, list_stages, open_store
from headwater.store.state_files import name_kept

RECORD = "record.db"


def write_archive(study: str, record: Path, path: Path, *, with_weights: bool) -> None:
    """Write a record as it is at this moment and, if asked, the kept weights of the study and its stages.

    Raises:
        StoreError: There is none, or it has no such study.
    """
    copy = path.with_suffix(".db")
    with open_store(record, create=False) as store:
        studies = [store.study(study), *list_stages(store, study)]
        places = [find_states(store, one) for one in studies] if with_weights else []
    _copy_record(record, copy)
    with tarfile.open(path, "w") as archive:
        archive.add(copy, RECORD)
        for place in places:
            file = None if place.kept is None else Path(place.url) / name_kept(*place.kept)
            if file is not None and file.is_file():
                archive.add(file, f"{RECORD}.states/{file.parent.name}/{file.name}")
    copy.unlink()


def _copy_record(record: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"{record.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise StoreError(f"{record.name} cannot be copied: {error}") from error


if __name__ == "__main__":
    try:
        write_archive(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[4]), with_weights=sys.argv[3] == "weights")
    except HeadwaterError as error:
        sys.exit(f"error: {error}")
