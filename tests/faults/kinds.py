"""The kinds of faults: what happens at the chosen moment, and how it is over again.

Another kind is another entry of KINDS.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.faults.killing import die
from tests.faults.memory import can_limit_memory, exhaust_memory, remove_group

TMPFS_BYTES = 3_000_000
RECORD = "study.db"


class Where(StrEnum):
    """In which process the moment is chosen."""

    STUDY = "the study's"
    WORKER = "one that trains for it"
    LOADER = "one that loads data"
    CALLBACK = "the study's, in a callback"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. All three get the folder of the record."""

    begin: Callable[[Path], None]
    """Happens at the chosen moment."""
    end: Callable[[Path], None] = lambda folder: None
    """Makes an end of it, when the run is over."""
    prepare: Callable[[Path], None] = lambda folder: None
    """Comes before the run."""
    where: Where = Where.STUDY
    num_resumes: int = 1
    """How many processes resume at once."""
    kills: bool = False
    """Whether it leaves the study's process no time to say anything."""
    spares: tuple[str, ...] = ()
    """The searches that it does not befall."""
    executors: tuple[str, ...] = ("inline", "processes")
    """Those whose studies it befalls."""
    keeps_work: bool = False
    """Whether no trial may train more than one checkpoint interval again."""


class UnpluggedError(Exception):
    """What a user's callback raises."""


def unplug(folder: Path) -> None:
    raise UnpluggedError("nobody there")


def die_at_once(folder: Path) -> None:
    die()


def kill_node(folder: Path) -> None:
    """End the raylet that has started this process, and so the whole node."""
    os.kill(os.getppid(), signal.SIGKILL)


def can_mount() -> bool:
    """Whether this process may have a disk of its own to fill."""
    probe = Path("/tmp") / f"probe-{os.getpid()}"
    probe.mkdir()
    done = subprocess.run(_mount_command(probe), capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    probe.rmdir()
    return done.returncode == 0


def can_be_tried(kind: str) -> bool:
    """Whether this machine allows a kind of fault."""
    if KINDS[kind].prepare is mount:
        return can_mount()
    return can_limit_memory() if KINDS[kind].begin is exhaust_memory else True


def mount(folder: Path) -> None:
    subprocess.run(_mount_command(folder), check=True)


def _mount_command(folder: Path) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "none", str(folder)]


def fill(folder: Path) -> None:
    """Write until there is no room, as somebody else on the machine might."""
    number = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (65536, 512):
            try:
                while True:
                    os.write(number, bytes(size))
            except OSError:
                pass
    finally:
        os.close(number)


def make_room(folder: Path) -> None:
    (folder / "ballast").unlink(missing_ok=True)


def limit_files(folder: Path) -> None:
    """Let no file of this process grow any more; it ends with the process."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
open(sys.argv[2], "rb").read()
connection.execute("BEGIN IMMEDIATE")
open(sys.argv[2], "rb").read()
"""


def start_holder(folder: Path) -> None:
    """Start a process that takes the lock of the record when it hears of it, and holds it until it is ended."""
    os.mkfifo(folder / "holding")
    command = [sys.executable, "-c", _HOLD, str(folder / RECORD), str(folder / "holding")]
    pid = os.posix_spawn(sys.executable, command, os.environ, setsid=True)
    (folder / "holder").write_text(str(pid))


def lock(folder: Path) -> None:
    """Let the lock be taken as soon as this process leaves it; here nobody can wait for that."""
    os.close(os.open(folder / "holding", os.O_WRONLY))


def unlock(folder: Path) -> None:
    pid = int((folder / "holder").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def move_away(folder: Path) -> None:
    if (folder / RECORD).exists():
        (folder / RECORD).rename(folder / "aside")


def replace_by_copy(folder: Path) -> None:
    if (folder / RECORD).exists():
        shutil.copy(folder / RECORD, folder / "copy")
        (folder / RECORD).rename(folder / "aside")
        (folder / "copy").rename(folder / RECORD)


def move_back(folder: Path) -> None:
    if (folder / "aside").exists():
        (folder / "aside").rename(folder / RECORD)


def damage_states(folder: Path) -> None:
    """Harm every state in one of several ways, as a broken disk or a person might."""
    states = sorted(folder.rglob("[0-9]*.safetensors"))
    rng = random.Random(sum(path.stat().st_mtime_ns for path in states))
    contents = [path.read_bytes() for path in states]
    for path, content in zip(states, contents, strict=True):
        place = rng.randrange(len(content))
        flipped = content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        another = rng.choice(contents)
        harmed = rng.choice([b"", content[:place], flipped, another, content + b"more", bytes(len(content)), None])
        if harmed is None:
            path.unlink()
        else:
            path.write_bytes(harmed)
    for draft in states[:1]:
        draft.with_name(f"{draft.name}.0123.part").write_bytes(b"cut short")


KINDS: dict[str, Kind] = {
    "kill of the study": Kind(die_at_once, kills=True, executors=("inline", "processes", "ray"), keeps_work=True),
    "kill of a worker": Kind(die_at_once, where=Where.WORKER, executors=("processes",), keeps_work=True),
    "kill of a Ray actor": Kind(die_at_once, where=Where.WORKER, executors=("ray",), keeps_work=True),
    "kill of a raylet": Kind(kill_node, where=Where.WORKER, executors=("ray",), keeps_work=True),
    "out of memory": Kind(exhaust_memory, remove_group, where=Where.WORKER, executors=("processes",), keeps_work=True),
    "kill of a process that loads data": Kind(die_at_once, where=Where.LOADER, spares=("surrogate", "packs", "ranks")),
    "full disk": Kind(fill, make_room, mount),
    "no file may grow": Kind(limit_files),
    "locked database": Kind(lock, unlock, start_holder),
    "database moved away": Kind(move_away, move_back),
    "database replaced": Kind(replace_by_copy, move_back),
    "callback that raises": Kind(unplug, where=Where.CALLBACK),
    # A copy whose parent's state is gone starts again without it and says so, which no other run can be compared with.
    "damaged states": Kind(die_at_once, damage_states, kills=True, spares=("pbt",)),
    "race of three resumes": Kind(die_at_once, num_resumes=3, kills=True),
}
