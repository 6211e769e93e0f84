"""Server-sent events: what changed, once for each version, and again for who comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.page_studies import write_plain

from headwater.report.page.study_page import StudyPage
from headwater.serve import live as live_module
from headwater.serve.live import LiveStudy
from headwater.store import Batch, Store, open_store
from headwater.trials import Report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_plain(tmp_path / "record.db", num_trials=6)
    return tmp_path / "record.db"


def report(store: Store, epoch: int) -> None:
    store.write(1, Batch(reports=(Report(number=1, epoch=epoch, metrics={"accuracy": epoch / 100}),)))


def read_event(raw: bytes) -> dict[str, Any]:
    fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n"))
    return {"id": int(fields["id"]), "event": fields.get("event"), "data": json.loads(fields["data"])}


async def next_event(events: AsyncIterator[bytes]) -> dict[str, Any]:
    async for raw in events:
        if b"data:" in raw:
            return read_event(raw)
    raise AssertionError("the events ended")


async def look(path: Path, act: Any) -> Any:  # Any: a coroutine function of the tests below, and what it returns
    with ThreadPoolExecutor(1) as threads, open_store(path, create=False) as reader, open_store(path) as writer:
        live = LiveStudy(StudyPage(reader, reader.study()), threads)
        await live.read(live.page.whole)
        return await act(live, writer)


def test_who_follows_is_told_of_every_report(path: Path) -> None:
    async def act(live: LiveStudy, writer: Store) -> None:
        events = live.follow(live.page.version)
        assert await anext(events) == b"retry: 1000\n\n"
        for epoch in (10, 11, 12):
            report(writer, epoch)
            event = await next_event(events)
            assert event["id"] == live.page.version
            assert event["data"]["head"]["num_epochs"] == live.page.followed.best.num_epochs
        await events.aclose()

    asyncio.run(look(path, act))


def test_who_comes_back_gets_what_was_missed(path: Path) -> None:
    async def act(live: LiveStudy, writer: Store) -> None:
        left_at = live.page.version
        for epoch in (10, 11):
            report(writer, epoch)
            await live.read(live.page.whole)
        events = live.follow(left_at)
        missed = [await next_event(events), await next_event(events)]
        assert [event["id"] for event in missed] == [left_at + 1, left_at + 2]
        assert [event["data"]["trials"]["start"] for event in missed] == ["u1:Ag==", "u1:Aw=="]
        await events.aclose()

    asyncio.run(look(path, act))


@pytest.mark.parametrize("since", [-1, 999])
def test_who_was_away_for_too_long_is_told_to_read_all_again(path: Path, since: int) -> None:
    async def act(live: LiveStudy, writer: Store) -> None:
        events = live.follow(since)
        event = await next_event(events)
        assert (event["event"], event["id"]) == ("reload", live.page.version)
        await events.aclose()

    asyncio.run(look(path, act))


def test_many_who_follow_cost_one_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "LOOK_S", 0.01)

    async def act(live: LiveStudy, writer: Store) -> None:
        followers = [live.follow(live.page.version) for _ in range(5)]
        waits = [asyncio.create_task(next_event(events)) for events in followers]
        await asyncio.sleep(0)
        report(writer, 10)
        told = await asyncio.gather(*waits)
        assert all(event == told[0] for event in told)
        assert live.page.version == told[0]["id"]
        for events in followers:
            await events.aclose()

    asyncio.run(look(path, act))
