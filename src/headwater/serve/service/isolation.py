"""How submitted code is kept to itself: its environment, its limits, its system user, and how it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import headwater
from headwater.errors import StudyError
from headwater.serve.service.folders import StudyFolder
from headwater.serve.service.memory_groups import MemoryGroups
from headwater.serve.service.values import Json

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each process of a study may take at most, and how long a study may go on that is to end."""

    memory_bytes: int
    """Address space, of which torch takes some gigabytes for itself; and what all processes of a study take together,
    where there are control groups."""
    groups: MemoryGroups | None = None
    """Where control groups are made; None where none can be."""
    file_bytes: int = 8 * GIB
    num_files: int = 4096
    num_processes: int = 4096
    """Processes and threads of all studies of a user; the system counts them where these run as a user of their own."""
    grace_s: float = 60.0
    """A study that is past its deadline or budget is killed if it has not come to a report for so long."""

    def as_system(self) -> dict[str, int]:
        """Return them by the names that the system has for them."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.num_files,
            "RLIMIT_NPROC": self.num_processes,
            "RLIMIT_CORE": 0,
        }


def is_root() -> bool:
    """Tell whether this process may become other users."""
    return os.geteuid() == 0


def count_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def make_environment(folder: StudyFolder) -> dict[str, str]:
    """Return all that a study finds in its environment: nothing of the service's own, but where this package is."""
    return {
        "HOME": str(folder.work),
        "LANG": "C.UTF-8",
        "LOGNAME": "headwater",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "PYTHONNOUSERSITE": "1",  # else files of the study's home would run in processes that speak for it
        "PYTHONPATH": str(Path(headwater.__file__).parents[1]),
        "TMPDIR": str(folder.work / "tmp"),
        "XDG_CACHE_HOME": str(folder.work / "tmp"),
    }


def choose_identity(folder: StudyFolder) -> Json:
    """Return how `subprocess` starts a process as the study's system user, without any group but its own."""
    if folder.uid is None:
        return {}
    return {"user": folder.uid, "group": folder.uid, "extra_groups": []}


def check_interpreter(folder: StudyFolder) -> None:
    """See whether the system user of a study can start Python with this package.

    Raises:
        StudyError: It cannot.
    """
    command = [sys.executable, "-P", "-c", "import headwater.serve.service.watching"]
    settings: Json = {"cwd": "/", "env": make_environment(folder), **choose_identity(folder)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
        told = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    except OSError as error:
        told = str(error.strerror)
    if told:
        raise StudyError(
            f"submitted studies run as users from {folder.uid} on, who cannot start {sys.executable} with Headwater: "
            f"{told}; install both where everybody can read them, or trust all users with --same-user"
        )


def kill_session(leader: int, uid: int | None) -> int:
    """Kill all processes of a session, those alone of this system user where there is one; return how many."""
    killed = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and (uid is None or folder.stat().st_uid == uid):
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
    return killed
