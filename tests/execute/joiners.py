"""Workers that join a study, as the command starts them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.execute.clusters import await_truth

import headwater as hw

AGAIN_S = 0.2
"""So long is waited before a worker is asked again to leave."""


def start_worker(url: str, key_file: Path, *options: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a worker of this machine; what it says goes into the file."""
    command = [sys.executable, "-m", "headwater", "worker", "--join", url, "--key-file", str(key_file), *options]
    with (log or Path(os.devnull)).open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    """End a worker and what it has started: the first Ctrl-C asks for it, a second has it leave now."""
    while worker.poll() is None:
        worker.send_signal(signal.SIGINT)  # two at once would count as one
        with suppress(subprocess.TimeoutExpired):
            worker.wait(AGAIN_S)


@contextmanager
def open_workers(
    executor: hw.JoinExecutor, key_file: Path, num_workers: int = 2, options: Sequence[str] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have workers join an executor, and end them."""
    workers = [start_worker(executor.url, key_file, *options) for _ in range(num_workers)]
    try:
        await_truth(lambda: len(executor.list_devices()) == num_workers)
        yield workers
    finally:
        for worker in workers:
            end_worker(worker)


def find_trainer(worker: subprocess.Popen[bytes]) -> int:
    """Return the process that trains for a worker."""
    (trainer,) = list_children_of(worker)
    return trainer


def list_children_of(worker: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes that a worker has started."""
    return [int(pid) for pid in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()]


def find_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
