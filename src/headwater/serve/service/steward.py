"""The steward of a study: a process beside its runner, as the same system user, that speaks with the service.

It starts the runner, or finds it where it is running still, tells the service what the record says, and writes into
the record what the service wishes. So the service itself opens nothing that a study has written. A lock that the runner
holds for as long as it lives tells whether there is one; where the service is gone, the steward goes too and the runner
goes on.

Studies that train together have one runner, which the steward of one of them starts for all. It holds a lock for each,
and lets go of it when that study has ended, with a file beside it that says how.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from headwater.serve.service.watching import RecordWatch

LOOK_S = 0.3
"""So often is the record looked at."""
LOCK, PID, STATUS = "runner.lock", "runner.pid", "runner.status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mate:
    """One of the studies that train together."""

    study: str
    work: str
    options: Mapping[str, Any]  # Any: JSON values
    log: int
    """The number of its open log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a steward is told at the beginning. Paths are absolute."""

    study: str
    work: str
    source: str
    arguments: tuple[str, ...]
    """Of the command that runs the study."""
    num_devices: int | None
    """None: another steward sees to the devices of studies that train together."""
    limits: Mapping[str, int]
    """By the name of a limit of the system, such as RLIMIT_AS."""
    may_start: bool = True
    """Whether a runner is to be started where none runs."""
    crew: tuple[Mapping[str, Any], ...] = ()  # Any: JSON values
    """All studies that one runner is to train, as Mates; none where this study has a runner of its own."""


def main() -> None:
    """Be a steward until the runner has ended or the service is gone."""
    messages = _receive()
    setup = Setup(**next(message for message in messages if message))
    for name, value in setup.limits.items():
        _limit(getattr(resource, name), value)
    crew = [Mate(**one) for one in setup.crew]
    locks = [(Path(work) / LOCK).open("ab") for work in ([mate.work for mate in crew] or [setup.work])]
    is_free = all(map(_try_lock, locks))
    if (is_free and not setup.may_start) or (crew and not is_free):
        _tell({"ended": _read_number(setup, STATUS) if is_free else None})
        return
    runner = None
    if is_free:
        runner = _start_together(setup, crew, locks) if crew else _start(setup, locks[0])
        for lock in locks:
            lock.close()  # the runner holds them now, and nobody else
        for work in [mate.work for mate in crew] or [setup.work]:
            (Path(work) / PID).write_text(str(runner.pid))
    _tell({"pid": _read_number(setup, PID)})
    _accompany(setup, runner, messages, is_shared=bool(crew))


def _accompany(
    setup: Setup, runner: subprocess.Popen[bytes] | None, messages: Iterator[dict[str, Any]], *, is_shared: bool
) -> None:
    from headwater.serve.service.watching import RecordWatch

    watch = RecordWatch(setup.study, Path(setup.work) / "record.db", setup.num_devices)
    lock = (Path(setup.work) / LOCK).open("ab")
    for command in messages:
        if "devices" in command:
            watch.num_devices = command["devices"]
        watch.is_to_stop = watch.is_to_stop or bool(command.get("stop"))
        has_exited = runner is not None and runner.poll() is not None
        is_own = runner is not None and not is_shared
        has_ended = has_exited if is_own else _try_lock(lock)
        _look(watch)
        if has_ended:
            _tell({"ended": runner.returncode if runner is not None and is_own else _read_number(setup, STATUS)})
            return


def _look(watch: RecordWatch) -> None:
    news = watch.look()
    if news is not None:
        _tell({"progress": news})


def _start(setup: Setup, lock: BinaryIO) -> subprocess.Popen[bytes]:
    """Start the runner; all that it prints goes to the log."""
    (Path(setup.work) / STATUS).unlink(missing_ok=True)
    return _run(setup, setup.arguments, sys.stderr.fileno(), [lock.fileno()])


def _start_together(setup: Setup, crew: Sequence[Mate], locks: Sequence[BinaryIO]) -> subprocess.Popen[bytes]:
    """Start the runner of several studies; what their code prints goes to the logs of all."""
    logs = [mate.log for mate in crew]
    ends = [Path(mate.work) / STATUS for mate in crew]
    for end in ends:
        end.unlink(missing_ok=True)
    copies = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "headwater.serve.service.log_copies"),
            *(f"{log}:{end}" for log, end in zip(logs, ends, strict=True)),
        ],
        stdin=subprocess.PIPE,
        start_new_session=True,
        pass_fds=logs,
    )
    posts = [
        {
            "study": mate.study,
            "record": str(Path(mate.work) / "record.db"),
            "options": mate.options,
            "status": str(end),
            "lock": lock.fileno(),
            "log": mate.log,
        }
        for mate, end, lock in zip(crew, ends, locks, strict=True)
    ]
    assert copies.stdin is not None
    with copies.stdin as output:
        fds = [*logs, *(lock.fileno() for lock in locks)]
        return _run(setup, (*setup.arguments, json.dumps(posts)), output.fileno(), fds)


def _run(setup: Setup, arguments: Sequence[str], output: int, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a runner in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headwater", *arguments, f"--devices={setup.num_devices}"],
        cwd=setup.source,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        pass_fds=fds,
    )


def _receive() -> Iterator[dict[str, Any]]:  # Any: JSON values
    """Yield the messages of the service, and an empty one every `LOOK_S` seconds of silence; end when it is gone.

    All input goes through this reader. A second, buffered one (`sys.stdin`) would swallow a message that arrives in the
    same read as the set-up, and `select` would never report it.
    """
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


def _read_number(setup: Setup, name: str) -> int | None:
    try:
        return int((Path(setup.work) / name).read_text())
    except (OSError, ValueError):
        return None


def _limit(which: int, value: int) -> None:
    """Set a limit, or leave a lower one that there is."""
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


if __name__ == "__main__":
    main()
