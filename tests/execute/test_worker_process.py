"""A worker process starts from anywhere, says when it is gone, and outlives nobody."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.execute.calling import DEADLINE_S, ROOT, python_environment, run_python

from headwater.errors import LineLost, StudyError
from headwater.execute.lines import Line
from headwater.execute.worker_process import WorkerProcess

SCRIPT = """
import sys
from tests.execute.test_worker_process import WorkerProcess, {serve}
worker = WorkerProcess("a worker", {serve})
assert worker.receive() == "ready"
print(worker.pid, flush=True)
sys.stdin.read()
"""


def echo(line: Line) -> None:
    while True:
        line.send(line.receive())


def tell_environment(line: Line) -> None:
    line.send({name: os.environ.get(name) for name in line.receive()})


def wait_for_ever(line: Line) -> None:
    line.send("ready")
    Event().wait()


def wait_for_words(line: Line) -> None:
    line.send("ready")
    line.receive()


def fail(line: Line) -> None:
    raise RuntimeError(f"told to fail, with {line.receive()}")


def speak(line: Line) -> None:
    os.write(1, b"spoken")
    os.write(2, b"shouted")


def register_farewell(line: Line) -> None:
    atexit.register(Path(line.receive()).write_text, "written at the end")
    line.send("ready")
    line.receive()


def leave_a_child(line: Line) -> None:
    """End while a process that was forked here still holds this end of the line."""
    child = os.fork()
    if child == 0:
        Event().wait()
    line.send(child)


@pytest.fixture(autouse=True)
def tests_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handles = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.syspath_prepend(ROOT)
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == handles


def ask(serve: Any, message: object, **settings: Any) -> Any:
    worker = WorkerProcess("a worker", serve, **settings)
    try:
        worker.send(message)
        return worker.receive()
    finally:
        worker.kill()


def test_messages_go_both_ways() -> None:
    assert ask(echo, {"a": [1, 2.5, None], "b": b"x" * 1_000_000}) == {"a": [1, 2.5, None], "b": b"x" * 1_000_000}


def test_threads_and_gpus_are_set_for_each_worker() -> None:
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"]
    found = ask(tell_environment, names, num_threads=3, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert found == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "1"}


def test_several_are_waited_for_at_once() -> None:
    workers = [WorkerProcess(f"worker {number}", echo) for number in range(2)]
    try:
        workers[1].send("hello")
        assert wait([worker.fileno() for worker in workers], DEADLINE_S) == [workers[1].fileno()]
        assert [worker.has_message() for worker in workers] == [False, True]
    finally:
        for worker in workers:
            worker.kill()


def test_one_starts_from_a_thread() -> None:
    with ThreadPoolExecutor() as pool:
        assert pool.submit(ask, echo, "hello").result() == "hello"


def test_one_starts_from_a_daemonic_process() -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=lambda: theirs.send(ask(echo, "hello")), daemon=True)
    process.start()
    with ours, theirs:
        assert ours.poll(DEADLINE_S)
        assert ours.recv() == "hello"
    process.join()


def test_it_prints_where_its_parent_prints(capfd: pytest.CaptureFixture[str]) -> None:
    WorkerProcess("a worker", speak).end(DEADLINE_S)
    assert capfd.readouterr() == ("spoken", "shouted")


def test_an_interrupt_is_not_its_business() -> None:
    worker = WorkerProcess("a worker", echo)
    try:
        os.kill(worker.pid, signal.SIGINT)  # before it can have done anything about it
        worker.send("first")
        assert worker.receive() == "first"
        os.kill(worker.pid, signal.SIGINT)
        worker.send("second")
        assert worker.receive() == "second"
    finally:
        worker.kill()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_one_that_is_killed_is_noticed() -> None:
    worker = WorkerProcess("a worker", wait_for_ever)
    assert worker.receive() == "ready"
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(LineLost):
        worker.receive()
    assert "SIGKILL; the machine has most likely run out of memory" in worker.explain_end()
    with pytest.raises(LineLost):
        worker.send("anything")
    worker.kill()


def test_one_that_fails_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    worker = WorkerProcess("a worker", fail)
    worker.send("pleasure")
    with pytest.raises(LineLost):
        worker.receive()
    assert worker.explain_end() == "the process that trained it ended with status 1"
    assert "told to fail, with pleasure" in capfd.readouterr().err
    worker.kill()


def test_one_that_is_gone_is_seen_even_if_its_own_child_holds_the_line() -> None:
    worker = WorkerProcess("a worker", leave_a_child)
    child = worker.receive()
    try:
        _await_end(worker.pid)
        assert not worker.is_alive
        assert not worker.has_message()
    finally:
        os.kill(child, signal.SIGKILL)
        worker.kill()


def test_one_that_has_nothing_to_do_ends_by_itself() -> None:
    worker = WorkerProcess("a worker", wait_for_words)
    assert worker.receive() == "ready"
    worker.end(DEADLINE_S)
    assert worker.explain_end() == "the process that trained it ended with status 0"


def test_one_that_does_not_end_is_ended() -> None:
    worker = WorkerProcess("a worker", wait_for_ever)
    assert worker.receive() == "ready"
    worker.end(0)
    assert "SIGKILL" in worker.explain_end()


@pytest.mark.parametrize("serve", ["wait_for_words", "wait_for_ever"])
def test_one_whose_parent_is_killed_ends(serve: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT.format(serve=serve)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=python_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        _await_end(worker)


def test_a_script_that_is_only_imported_starts_none(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import multiprocessing\n"
        "from tests.execute.test_worker_process import StudyError, ask, echo\n"
        "try:\n"
        "    print(ask(echo, 'asked'), flush=True)\n"
        "except StudyError as error:\n"
        "    print(error, flush=True)\n"
        "else:\n"
        "    process = multiprocessing.get_context('spawn').Process(target=print, args=('called',))\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    assert issubclass(StudyError, Exception)
    first, second, third = run_python("script.py", folder=tmp_path).splitlines()
    assert (first, third) == ("asked", "called")
    assert 'under `if __name__ == "__main__":`' in second


def _await_end(process: int) -> None:
    """Wait until a process, which need not be ours, has ended."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], DEADLINE_S)[0], f"process {process} goes on"
    finally:
        os.close(handle)


def test_what_is_registered_for_the_end_of_a_process_is_called_when_it_is_dismissed(tmp_path: Path) -> None:
    worker = WorkerProcess("a worker", register_farewell)
    worker.send(tmp_path / "farewell")
    assert worker.receive() == "ready"
    worker.dismiss()
    worker.end(DEADLINE_S)
    assert (tmp_path / "farewell").read_text() == "written at the end"
    assert not worker.was_killed
