"""The coordinator by itself: wishes that are repeated, and faults of the machine that pass."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headwater.serve.service.coordinator import Coordinator
from headwater.serve.service.folders import ServiceFolder
from headwater.serve.service.isolation import Limits
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role, State, Submission, Wish
from headwater.trials import Device

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceStore]:
    monkeypatch.setattr("headwater.store.engine.LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setattr("headwater.serve.service.coordinator.TICK_S", 0.05)
    with ServiceStore.open(str(tmp_path / "service.db")) as opened:
        opened.add_user("ada", Role.USER, {})
        yield opened


def coordinate(store: ServiceStore, tmp_path: Path) -> Coordinator:
    folder = ServiceFolder(tmp_path / "studies", None)
    folder.open()
    folder.close()
    return Coordinator(store, folder, [Device(name="cpu:0")], Limits(memory_bytes=2**40))


def test_a_wish_is_repeated_until_the_study_has_ended(store: ServiceStore, tmp_path: Path) -> None:
    asked = Submission(id="one", user="ada", file="train.py", options={}, state=State.RUNNING, created=0.0)
    store.add(asked, "key", "body")
    store.change("one", wish=Wish.STOP, wished=0.0)

    async def look() -> list[object]:
        coordinator = coordinate(store, tmp_path)
        (runner,) = coordinator._runners.add([asked], 1)
        runner._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ECHO, stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            await coordinator._tick()
        process.stdin.close()
        said = await process.stdout.read()
        await process.wait()
        return [json.loads(line) for line in said.splitlines()]

    assert asyncio.run(look()) == [{"stop": True}] * 3


def test_a_database_that_is_locked_for_a_while_does_not_end_the_service(
    store: ServiceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Submission(id="late", user="ada", file="a.py", options={}, state=State.QUEUED, created=0.0, deadline=1.0)
    store.add(late, "key", "body")

    async def look() -> None:
        task = asyncio.create_task(coordinate(store, tmp_path).run())
        told = ""
        with closing(sqlite3.connect(tmp_path / "service.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # so that the end of the study cannot be written down
            while "the service pauses" not in told and not task.done():
                await asyncio.sleep(0.01)
                told += capsys.readouterr().err
            other.rollback()
        while _read_state(store) is not State.STOPPED and not task.done():
            await asyncio.sleep(0.01)
        assert not task.done(), task
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(look())


def _read_state(store: ServiceStore) -> State:
    found = store.find("late")
    assert found is not None
    return found.state
