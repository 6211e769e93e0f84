"""The folders of the service: for each study one that is its user's, and a log beside it that is the service's.

Where the service runs as root, what a study owns belongs to a system user of its Headwater user, and nobody else can
look into it. The service never opens a file there by following a link: what it reads must be that user's own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from headwater.errors import StudyError

DRAFT = ".new-"
LEAST_UID = 1000
"""Below this, systems have users of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFolder:
    """Where one study lies."""

    path: Path
    uid: int | None
    """The system user that it belongs to; None for the one that the service runs as."""

    @property
    def work(self) -> Path:
        """The user's own part: the record, saved states, whatever the study writes."""
        return self.path / "work"

    @property
    def source(self) -> Path:
        """What was submitted, and where it runs."""
        return self.work / "source"

    @property
    def record(self) -> Path:
        """The study's record."""
        return self.work / "record.db"

    @property
    def log(self) -> Path:
        """What the study prints; it can only be added to from inside."""
        return self.path / "log"

    def create(self, files: Mapping[str, bytes]) -> None:
        """Make the folder with what was submitted, and give it to its user when all is there."""
        self.path.mkdir()
        self.path.chmod(0o711)
        self.work.mkdir(mode=0o700)
        for folder in (self.source, self.work / "tmp"):
            folder.mkdir(mode=0o700)
        for name, content in files.items():
            place = self.source / name
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.write_bytes(content)
        self.log.touch(mode=0o600)
        if self.uid is not None:
            # The outermost folder last: until then its user cannot put a link in the place of an inner one.
            for one in (*sorted(self.work.rglob("*"), reverse=True), self.work):
                os.chown(one, self.uid, self.uid, follow_symlinks=False)

    def remove(self) -> None:
        """Remove it with all that is in it; links are removed, not followed."""
        shutil.rmtree(self.path, ignore_errors=True)

    def open_own(self, path: Path) -> BinaryIO:
        """Open a file of the user's for reading, if it is that: no link, no device, nobody else's.

        Raises:
            StudyError: It is not.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            number = os.open(path, flags)
        except OSError as error:
            raise StudyError(f"{path.name} of study {self.path.name} cannot be read: {error.strerror}") from error
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != (os.geteuid() if self.uid is None else self.uid):
            os.close(number)
            raise StudyError(f"{path.name} of study {self.path.name} is no file of its own, and is not read")
        return os.fdopen(number, "rb")

    def read_log(self, offset: int, most_bytes: int) -> tuple[bytes, int]:
        """Return what the log has from a place on, and where that ends; from the beginning where it was cut since."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(offset if 0 <= offset <= size else 0)
            content = file.read(most_bytes)
            return content, file.tell()

    def read_tail(self, most_bytes: int = 2000) -> str:
        """Return the end of the log, from the beginning of a line on."""
        with suppress(OSError):
            size = self.log.stat().st_size
            content, _ = self.read_log(max(size - most_bytes, 0), most_bytes)
            text = content.decode("utf-8", "replace")
            return text if size <= most_bytes else text.partition("\n")[2]
        return ""


@dataclass(slots=True)
class ServiceFolder:
    """Where the studies of a service lie. One service at a time has it."""

    path: Path
    first_uid: int | None
    """The system user of the first Headwater user; the others follow. None: all run as the service does."""
    _lock: BinaryIO | None = field(default=None, init=False)

    def open(self) -> None:
        """Make the folder where it is missing, and have it alone from now on.

        Raises:
            StudyError: Another service has it, or its users could not get to their own folders in it.
        """
        if self.first_uid is not None and self.first_uid < LEAST_UID:
            raise StudyError(f"--first-uid is {self.first_uid}; below {LEAST_UID}, systems have users of their own")
        try:
            for folder in (self.path, self.studies, self.shares):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o711)
            self._lock = (self.path / "lock").open("ab")
            os.fchmod(self._lock.fileno(), 0o600)  # a study that could open the file could hold the lock
        except OSError as error:
            raise StudyError(f"{self.path} cannot hold studies: {error.strerror}; give another --folder") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                f"another service has {self.path}; end it first, or give this one another --storage"
            ) from None
        if self.first_uid is not None:
            for folder in (self.studies, *self.studies.resolve().parents):
                if not folder.stat().st_mode & stat.S_IXOTH:
                    raise StudyError(
                        f"submitted studies run as users from {self.first_uid} on, who cannot get through {folder}; "
                        "chmod o+x it, or give a --folder elsewhere"
                    )

    @property
    def studies(self) -> Path:
        """Where each study has a folder."""
        return self.path / "studies"

    @property
    def shares(self) -> Path:
        """Where studies that train together have their common files."""
        return self.path / "shares"

    def find(self, study: str, place: int) -> StudyFolder:
        """Return the folder of a study, whose user is the `place`th."""
        uid = None if self.first_uid is None else self.first_uid + place
        return StudyFolder(path=self.studies / study, uid=uid)

    def find_shared(self, share: str, place: int) -> StudyFolder:
        """Return the folder in which studies of several users train that were submitted with the same files."""
        uid = None if self.first_uid is None else self.first_uid + place
        return StudyFolder(path=self.shares / share, uid=uid)

    def make_shared(self, share: str, place: int, files: Mapping[str, bytes]) -> None:
        """Make that folder where there is none yet."""
        folder = self.find_shared(share, place)
        draft = self.find_shared(f"{DRAFT}{share}-{token_hex(4)}", place)
        if not folder.path.exists():
            draft.create(files)
            with suppress(OSError):  # somebody else has made it meanwhile
                draft.path.rename(folder.path)
            draft.remove()

    def draft(self, study: str, place: int) -> StudyFolder:
        """Return the folder of a study that is being taken in, until the service knows it."""
        return self.find(f"{DRAFT}{study}", place)

    def settle(self, study: str) -> None:
        """Give the folder of a study its name, now that the service knows it."""
        (self.studies / f"{DRAFT}{study}").rename(self.studies / study)

    def settle_all(self, known: Collection[str]) -> None:
        """Go on where a service was killed while it took studies in: those that it knows by then are there."""
        for folder in self.shares.glob(f"{DRAFT}*"):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self.studies.glob(f"{DRAFT}*"):
            study = folder.name.removeprefix(DRAFT)
            if study in known:
                self.settle(study)
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.close()
