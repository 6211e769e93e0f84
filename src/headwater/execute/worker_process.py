"""A process of this machine that works for another: a fresh interpreter that inherits nothing and is sent its work.

The two speak through a pair of sockets without a name, so nobody else can. The process prints where its parent prints,
leaves Ctrl-C to it, and ends when it is gone.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headwater.errors import LineLost, StudyError
from headwater.execute.idle_class import needs_session, step_back
from headwater.execute.lines import Line
from headwater.stalls import LentStage

OOM_SCORE = 500
"""How willing a worker is to be ended by the system where memory runs out, of 1000; its parent's is usually 0."""
LOOK_EVERY_S = 1.0
"""So often does a process see whether its parent is still there, while it is at work and hears nothing of it."""
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_START = (
    "import sys; sys.path[:] = sys.argv[4:]; "
    "from headwater.execute.worker_process import work_for_parent; work_for_parent(int(sys.argv[2]), int(sys.argv[3]))"
)


class WorkerProcess:
    """A process, and this end of the line to it.

    `serve`, a function of an importable module, is called there with the other end; the process ends when it returns.
    A message that is larger than what the system keeps for the process waits until the process receives it. With a
    `host`, the process runs on the host's cores while the host does not.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Line], None],
        *,
        num_threads: int = 1,
        environment: Mapping[str, str] | None = None,
        host: LentStage | None = None,
    ) -> None:
        _check_main()
        self.name = name
        ours, theirs = socket.socketpair()
        with theirs, _holding_interrupts():
            self._process = subprocess.Popen(
                [
                    *(sys.executable, *subprocess._args_from_interpreter_flags()),  # type: ignore[attr-defined] # as spawn
                    *("-c", _START, name, str(theirs.fileno()), str(os.getpid()), *map(str, sys.path)),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Without a seed, sets of strings would have another order in every worker.
                env={
                    "PYTHONHASHSEED": "0",
                    **os.environ,
                    **dict.fromkeys(_THREADS, str(num_threads)),
                    **(environment or {}),
                },
                start_new_session=host is not None and needs_session(host),
            )
        if host is not None:
            step_back(self._process.pid, host)
        self._line = Line(Connection(ours.detach()))
        with suppress(LineLost):  # whoever receives hears of it, and can have it explained
            self.send((serve.__module__, serve.__qualname__))

    @property
    def pid(self) -> int:
        """What the system knows the process by."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended.

        Ask before `has_message`, for what it said before it ended is still to be heard. A process that it has started
        may hold its end of the line when it is gone itself.
        """
        return self._process.poll() is None

    def send(self, message: Any) -> None:  # Any: whatever can be pickled
        """Send a message.

        Raises:
            LineLost: The process is gone.
        """
        self._line.send(message)

    def receive(self) -> Any:  # Any: as sent
        """Wait for the next message.

        Raises:
            LineLost: The process is gone.
        """
        return self._line.receive()

    def has_message(self) -> bool:
        """Tell whether there is anything to receive, if only that the process is gone."""
        return self._line.has_message()

    def fileno(self) -> int:
        """Return what `multiprocessing.connection.wait` waits for."""
        return self._line.fileno()

    @property
    def was_killed(self) -> bool:
        """Whether the process was ended by SIGKILL, as the system does where memory runs out."""
        return self._process.poll() == -signal.SIGKILL

    def explain_end(self) -> str:
        """Say how the process ended, when it is gone and should not be."""
        status = self._process.wait()
        if status >= 0:
            return f"the process that trained it ended with status {status}"
        cause = "; the machine has most likely run out of memory" if -status == signal.SIGKILL else ""
        return f"the process that trained it was ended by {signal.Signals(-status).name}{cause}"

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.wait()
        self._line.close()

    def dismiss(self) -> None:
        """Give up the line, at which the process comes to its end by itself."""
        self._line.close()

    def end(self, timeout_s: float) -> None:
        """Give up the line, let the process come to its end by itself, and end it if it takes too long."""
        self._line.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()


def work_for_parent(handle: int, parent: int) -> None:
    """Serve the process that has started this one, through the socket that it has handed over, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # of another system than Linux, or one that does not allow it
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.set_inheritable(handle, False)  # programs that are started here must not hold the line
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    line = Line(Connection(handle))
    with suppress(LineLost):  # the parent has ended this process, or is gone
        module, name = line.receive()
        serve: Any = reduce(getattr, name.split("."), import_module(module))
        serve(line)
    _leave()


def _leave() -> None:
    """End without taking the interpreter apart: with torch in it that takes seconds, and the parent waits."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


def _check_main() -> None:
    """Refuse to start processes from a script that is only imported, by a process that multiprocessing has started."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise StudyError(
            "a study was started while a process of multiprocessing, such as a worker of a DataLoader, imported the "
            'script; put what runs the study under `if __name__ == "__main__":`'
        )


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from whoever is started here; a process begins with the mask of the thread that starts it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
