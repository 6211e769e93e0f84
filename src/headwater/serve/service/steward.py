"""The steward of a study: a process beside its runner, as the same system user, that speaks with the service.

It starts the runner, or finds it where it is running still, tells the service what the record says, and writes into
the record what the service wishes. So the service itself opens nothing that a study has written. A lock that the runner
holds for as long as it lives tells whether there is one; where the service is gone, the steward goes too and the runner
goes on.

Each line on its standard input and output is a JSON object. The first line in is a `Setup`; later ones have `devices`,
how many the study is to have, or `stop`. Lines out have `pid`, `progress`, or, the last one, `ended` with the runner's
status.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from headwater.serve.service.watching import RecordWatch

LOOK_S = 0.3
"""So often is the record looked at."""
LOCK, PID = "runner.lock", "runner.pid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a steward is told at the beginning. Paths are absolute."""

    study: str
    work: str
    source: str
    arguments: tuple[str, ...]
    """Of the command that runs the study."""
    num_devices: int
    limits: Mapping[str, int]
    """By the name of a limit of the system, such as RLIMIT_AS."""
    may_start: bool = True
    """Whether a runner is to be started where none runs."""


def main() -> None:
    """Be a steward until the runner has ended or the service is gone."""
    setup = Setup(**json.loads(sys.stdin.buffer.readline()))
    for name, value in setup.limits.items():
        _limit(getattr(resource, name), value)
    lock = (Path(setup.work) / LOCK).open("ab")
    is_free = _try_lock(lock)
    if is_free and not setup.may_start:
        _tell({"ended": None})
        return
    runner = _start(setup, lock) if is_free else None
    if runner is not None:
        lock.close()  # the runner holds it now, and nobody else
        (Path(setup.work) / PID).write_text(str(runner.pid))
        _tell({"pid": runner.pid})
    else:
        _tell({"pid": _read_pid(setup)})
    _accompany(setup, runner, lock)


def _accompany(setup: Setup, runner: subprocess.Popen[bytes] | None, lock: BinaryIO) -> None:
    from headwater.serve.service.watching import RecordWatch

    watch = RecordWatch(setup.study, Path(setup.work) / "record.db", setup.num_devices)
    for command in _hear():
        if "devices" in command:
            watch.num_devices = int(command["devices"])
        watch.is_to_stop = watch.is_to_stop or bool(command.get("stop"))
        has_ended = runner.poll() is not None if runner is not None else _try_lock(lock)
        _look(watch)
        if has_ended:
            _tell({"ended": None if runner is None else runner.returncode})
            return


def _look(watch: RecordWatch) -> None:
    news = watch.look()
    if news is not None:
        _tell({"progress": news})


def _start(setup: Setup, lock: BinaryIO) -> subprocess.Popen[bytes]:
    """Start the runner in a session of its own; all that it prints goes to the log."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headwater", *setup.arguments, f"--devices={setup.num_devices}"],
        cwd=setup.source,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        start_new_session=True,
        pass_fds=[lock.fileno()],
    )


def _hear() -> Iterator[dict[str, Any]]:  # Any: JSON values
    """Yield what the service says, and an empty object whenever it has said nothing for a while; end with it."""
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_S)
        if not ready:
            yield {}
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, pending = (pending + read).split(b"\n")
        yield from (json.loads(line) for line in lines)


def _tell(message: Mapping[str, Any]) -> None:  # Any: JSON values
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(setup: Setup) -> int | None:
    try:
        return int((Path(setup.work) / PID).read_text())
    except (OSError, ValueError):
        return None


def _limit(which: int, value: int) -> None:
    """Set a limit, or leave a lower one that there is."""
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


if __name__ == "__main__":
    main()
