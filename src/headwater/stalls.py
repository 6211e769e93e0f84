"""What a pipeline tells of its stalls: a page of memory for each stage, which the host writes and fillers read.

A page is a mapped file in a folder of the user's own. To write that a stage waits takes no call of the system and wakes
nobody, as a message to another process would. The host holds a lock on its page; the system
drops it when the host ends, however it ends. Pages hold numbers and JSON: nothing that is read from one is run.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headwater.errors import StudyError

PAGE_BYTES = 4096
NUM_TRIES = 1000
"""So often is a page read again that is being written."""
_LIVE = struct.Struct("<Q8q")
_HEADER_AT = 128
_MANY = (1 << 63) - 1
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LentStage:
    """A stage of a pipeline whose bubbles are lent."""

    stage: int
    num_stages: int
    pid: int
    """The process that trains it."""
    device: str = "cpu"
    """What torch calls its device."""
    cores: tuple[int, ...] = ()
    """The cores that the process may use."""
    memory_bytes: int | None = None
    """What the stage leaves of its device's memory; None where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallState:
    """What a stage does now, and has done since it is lent."""

    is_waiting: bool
    since_s: float
    """Since when, by the clock that all processes of a machine share."""
    until_s: float | None
    """When the stall is expected to end; None where that is not known, or where it computes."""
    num_steps: int
    num_stalls: int
    stalled_s: float
    """How long it has waited, in stalls that are over."""
    lent_s: float
    """How long it is lent, up to the last change."""

    @property
    def share(self) -> float:
        """Which part of the time the stage has waited."""
        return self.stalled_s / self.lent_s if self.lent_s > 0 else 0.0


def read_clock() -> float:
    """Tell the time by the clock that all processes of a machine share."""
    return time.monotonic()


class StallPage:
    """The host's side of a page: it says when its stage waits and when it computes.

    Raises:
        StudyError: The folder is somebody else's, or the stage is lent there already.
    """

    def __init__(self, folder: Path, lent: LentStage, clock: Callable[[], float] = read_clock) -> None:
        self._clock = clock
        self._path = _open_folder(folder) / f"stage-{lent.stage}"
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StudyError(
                f"stage {lent.stage} is lent in {folder} already; end that training, or lend in another folder"
            ) from None
        os.ftruncate(handle, 0)
        os.ftruncate(handle, PAGE_BYTES)
        self._handle = handle
        self._map = mmap.mmap(handle, PAGE_BYTES)
        self._begin_s = self._since_s = clock()
        self._is_waiting = False
        self._until_s = self._stalled_s = 0.0
        self._num_writes = self._num_steps = self._num_stalls = 0
        self._memory = 0
        header = json.dumps({key: value for key, value in asdict(lent).items() if key != "memory_bytes"}).encode()
        self._map[_HEADER_AT : _HEADER_AT + len(header)] = header
        self._write()

    @property
    def state(self) -> StallState:
        """What was said last."""
        return _read_state(self._map)[0]

    def begin_stall(self, expected_s: float | None = None) -> None:
        """Say that the stage waits from now on, and about how long."""
        self._since_s = self._clock()
        self._until_s = 0.0 if expected_s is None else self._since_s + expected_s
        self._is_waiting = True
        self._write()

    def end_stall(self) -> float:
        """Say that the stage computes again; return how long it has waited."""
        now_s = self._clock()
        waited_s = now_s - self._since_s
        self._stalled_s += waited_s
        self._num_stalls += 1
        self._since_s, self._until_s, self._is_waiting = now_s, 0.0, False
        self._write()
        return waited_s

    def count_step(self) -> int:
        """Say that a step is over; return how many are."""
        self._num_steps += 1
        self._write()
        return self._num_steps

    def open(self, memory_bytes: int | None) -> None:
        """Say how much memory the stage leaves: from now on it is lent; it never becomes more."""
        room = _MANY if memory_bytes is None else max(memory_bytes, 0)
        self._memory = min(self._memory or _MANY, room + 1 if room < _MANY else room)
        self._write()

    def close(self) -> None:
        """Lend no more."""
        self._path.unlink(missing_ok=True)
        self._map.close()
        os.close(self._handle)

    def _write(self) -> None:
        """Write all numbers; while that goes on, their count is odd."""
        self._num_writes += 2
        numbers = (
            self._is_waiting,
            round(self._since_s * _NS),
            round(self._until_s * _NS),
            self._num_steps,
            self._num_stalls,
            round(self._stalled_s * _NS),
            round((self._clock() - self._begin_s) * _NS),
            self._memory,
        )
        struct.pack_into("<Q", self._map, 0, self._num_writes - 1)
        _LIVE.pack_into(self._map, 0, self._num_writes - 1, *numbers)
        struct.pack_into("<Q", self._map, 0, self._num_writes)


class LentPage:
    """The filler's side of a page.

    Raises:
        FileNotFoundError: The stage is lent no more.
        StudyError: It is no page.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(self._handle, PAGE_BYTES, prot=mmap.PROT_READ)
        except ValueError:  # shorter: it is being made
            os.close(self._handle)
            raise FileNotFoundError(path) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_lent(self) -> bool:
        """Whether the host is still there."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        return False

    @property
    def state(self) -> StallState:
        """What the stage does now."""
        return _read_state(self._map)[0]

    @property
    def stage(self) -> LentStage | None:
        """Which stage it is, and what it leaves; None while it is not lent yet."""
        memory = _read_state(self._map)[1]
        header = bytes(self._map[_HEADER_AT:]).rstrip(b"\0")
        if not memory or not header:
            return None
        try:
            return _read_header(json.loads(header), None if memory == _MANY else memory - 1)
        except (ValueError, TypeError, KeyError):
            raise StudyError(f"{self.path} is no page of a pipeline; give the folder that it lends in") from None

    def close(self) -> None:
        """Look no more."""
        self._map.close()
        os.close(self._handle)


def list_lent(folder: Path) -> list[LentStage]:
    """Return the stages that are lent in a folder now; none where there is no such folder."""
    found = []
    for path in sorted(folder.glob("stage-*")):
        try:
            with LentPage(path) as page:
                stage = page.stage if page.is_lent else None
        except FileNotFoundError:
            continue
        found += [] if stage is None else [stage]
    return sorted(found, key=lambda one: one.stage)


def find_page(folder: Path, stage: int) -> Path:
    """Return where the page of a stage lies."""
    return folder / f"stage-{stage}"


def _open_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StudyError(f"others may write to {folder}; lend in a folder that only you can write to")
    return folder


def _read_state(page: mmap.mmap) -> tuple[StallState, int]:
    """Read all numbers as they were at one moment."""
    for _ in range(NUM_TRIES):
        count, waiting, since, until, steps, stalls, stalled, lent, memory = _LIVE.unpack_from(page, 0)
        if count % 2 == 0 and struct.unpack_from("<Q", page, 0)[0] == count:
            break
    state = StallState(
        is_waiting=bool(waiting),
        since_s=since / _NS,
        until_s=until / _NS if until else None,
        num_steps=steps,
        num_stalls=stalls,
        stalled_s=stalled / _NS,
        lent_s=lent / _NS,
    )
    return state, memory


def _read_header(header: dict[str, object], memory_bytes: int | None) -> LentStage:
    def read(name: str) -> int:
        value = header[name]
        if not isinstance(value, int) or value < 0:
            raise ValueError
        return value

    cores = header["cores"]
    if not isinstance(cores, list) or not all(isinstance(core, int) and core >= 0 for core in cores):
        raise ValueError
    return LentStage(
        stage=read("stage"),
        num_stages=read("num_stages"),
        pid=read("pid"),
        device=str(header["device"]),
        cores=tuple(cores),
        memory_bytes=memory_bytes,
    )
