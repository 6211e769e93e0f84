"""Which process runs a study, and how another one asks it to stop: both are facts in the record."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from headwater.store.store import Store

RUNNER, STOP = "runner", "stop"
"""The keys of the facts: who runs the study, None when nobody does; and whom somebody asked to stop."""
LISTEN_S = 1.0
"""A running study looks for wishes no more often than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A process that runs a study."""

    host: str
    pid: int
    started: float
    """Seconds since 1970; a wish is meant for this run alone, never for a later one."""

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == socket.gethostname()

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
        return not _has_ended(self)


def _has_ended(runner: Runner) -> bool:
    """Tell whether a number that is in use is that of a process which only waits to be buried, or of a later one."""
    try:
        fields = Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError):  # no Linux, or gone this moment
        return False
    began_s = time.time() - up_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] == "Z" or began_s > runner.started + 2


def find_runner(store: Store, study_id: int) -> Runner | None:
    """Return the process that runs the study as far as the record knows; one that was killed still stands there."""
    fact = store.fact(study_id, RUNNER)
    return None if fact is None else Runner(**fact)


def ask_to_stop(store: Store, study_id: int, runner: Runner, asker: str) -> None:
    """Ask the process that runs a study to end it after its next report."""
    store.add_fact(study_id, STOP, {"runner": asdict(runner), "asker": asker})


def find_asker(store: Store, study_id: int, runner: Runner) -> str | None:
    """Return who has asked this process to stop, None if nobody has."""
    fact = store.fact(study_id, STOP)
    return fact["asker"] if fact is not None and fact["runner"] == asdict(runner) else None


class Presence:
    """Has the record say that this process runs a study, while it does, and hears what others ask of it."""

    def __init__(self, store: Store, study_id: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._study_id = study_id
        self._clock = clock
        self._next_s = clock()
        self._runner = Runner(host=socket.gethostname(), pid=os.getpid(), started=time.time())

    def __enter__(self) -> Self:
        self._store.add_fact(self._study_id, RUNNER, asdict(self._runner))
        return self

    def __exit__(self, *_: object) -> None:
        self._store.add_fact(self._study_id, RUNNER, None)

    def hear_asker(self) -> str | None:
        """Return who asks this process to stop; None in between, for the record is read once a second at most."""
        now = self._clock()
        if now < self._next_s:
            return None
        self._next_s = now + LISTEN_S
        return find_asker(self._store, self._study_id, self._runner)
