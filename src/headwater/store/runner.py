"""Which process runs a study, and whether it may still be there: no wall clock is asked."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A process that runs a study, as its lease has it."""

    holder: str
    """Drawn at random for each run."""
    host: str
    pid: int
    process: str
    """What tells the process from all others: its machine since it was started, a slash, and since when it is there."""
    fence: int = 0
    """Which acquisition of the lease this is: a later one has a higher number."""
    beat: int = 0
    """Grows while the process lives."""

    @classmethod
    def here(cls) -> Self:
        """Return this process, for a new run."""
        pid = os.getpid()
        process = f"{_name_machine()}/{_read_start(pid)}"
        return cls(holder=uuid4().hex, host=socket.gethostname(), pid=pid, process=process)

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this machine, or of this container."""
        return self.process.rpartition("/")[0] == _name_machine()

    @property
    def is_this_process(self) -> bool:
        """Whether it is the process that asks."""
        return self.is_here and self.pid == os.getpid()

    def may_live(self) -> bool:
        """Tell whether the process may still be there; on another machine it may, for all we know."""
        if not self.is_here or sys.platform == "win32":  # there, the question would end the process
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _read_start(self.pid) == self.process.rpartition("/")[2]


def _name_machine() -> str:
    """Name what process numbers are unique in: a machine from one start to the next, or a container of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no Linux
        return socket.gethostname()


def _read_start(pid: int) -> str:
    """Read when a process began, in ticks since the machine did; "" where that cannot be known, "gone" for a corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no Linux, or gone this moment
        return ""
    return "gone" if fields[0] == "Z" else fields[19]
