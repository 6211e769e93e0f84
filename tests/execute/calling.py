"""What the tests of sending share: a worker process that calls what it is sent, and ways to run code as users do."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.execute.lines import Line
from headwater.execute.sending import receive_value, send_value
from headwater.execute.worker_process import WorkerProcess

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100


def serve(line: Line) -> None:
    """Call every function that comes, and answer with what it returns."""
    while True:
        try:
            answer, error = receive_value(line.receive())(), None
        except Exception:  # whatever goes wrong is for the test to see
            answer, error = None, traceback.format_exc()
        line.send((answer, error))


class Caller:
    """Calls functions in a worker process."""

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        self.worker = worker
        self._folder = folder

    def __call__(self, function: Callable[[], Any]) -> Any:
        self.worker.send(send_value(function, self._folder))
        answer, error = self.worker.receive()
        assert error is None, error
        return answer


@contextmanager
def open_caller(folder: Path, **settings: Any) -> Iterator[Caller]:
    worker = WorkerProcess("a worker", serve, **settings)
    try:
        yield Caller(worker, folder)
    finally:
        worker.kill()


def run_python(*arguments: str, folder: Path, text: str = "") -> str:
    """Run Python in a folder as a user would, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=python_environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_environment() -> dict[str, str]:
    """Return an environment in which Python finds the package and these tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
