"""Studies that somebody looks at: each is followed once, however many look, and told to all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar

from headwater.errors import StoreError
from headwater.report.page.study_page import StudyPage

T = TypeVar("T")

LOOK_S = 0.4
"""So often is the record looked at while somebody follows a study; less often where a look takes long."""
LARGEST_SHARE = 0.007
"""A look takes no more than this part of the time; with what it tells, the dashboard stays below a hundredth."""
QUIET_S = 15.0
"""After so long without news a line is sent, so that nobody takes the connection for dead."""
MOST_KEPT = 500
"""So many changes are kept for those who come back."""


class LiveStudy:
    """One study and those who follow it."""

    def __init__(self, page: StudyPage, threads: Executor) -> None:
        self.page = page
        self._threads = threads
        self._lock = asyncio.Lock()
        self._told: deque[tuple[int, str]] = deque(maxlen=MOST_KEPT)
        self._came = asyncio.Condition()
        self._num_followers = 0
        self._task: asyncio.Task[None] | None = None

    async def read(self, what: Callable[[], T]) -> T:
        """Bring the study up to date and have something read of it, in another thread."""
        async with self._lock:
            await self._look()
            return await asyncio.get_running_loop().run_in_executor(self._threads, what)

    async def follow(self, since: int) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: every change after version `since`; `reload` where that is too long ago."""
        self._num_followers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield b"retry: 1000\n\n"
            while True:
                missed = self._find_missed(since)
                if missed is None:
                    yield f"event: reload\nid: {self.page.version}\ndata: {{}}\n\n".encode()
                    since = self.page.version
                for version, text in missed or ():
                    yield f"id: {version}\ndata: {text}\n\n".encode()
                    since = version
                if not await self._wait(since):
                    yield b": still here\n\n"
        finally:
            self._num_followers -= 1

    def _find_missed(self, since: int) -> list[tuple[int, str]] | None:
        """Return the changes after a version; None where they are not all kept."""
        if since == self.page.version:
            return []
        missed = [told for told in self._told if told[0] > since]
        return missed if missed and missed[0][0] == since + 1 else None

    async def _wait(self, since: int) -> bool:
        """Wait until there is something newer, and tell whether there is."""
        async with self._came:
            try:
                await asyncio.wait_for(self._came.wait_for(lambda: self.page.version != since), QUIET_S)
            except TimeoutError:
                return False
        return True

    async def _watch(self) -> None:
        """Look at the record for as long as somebody follows."""
        while self._num_followers:
            spent_s = 0.0
            with suppress(StoreError):  # it may be there again later; who asks for the study itself is told
                async with self._lock:
                    spent_s = await self._look()
            await asyncio.sleep(max(LOOK_S, spent_s / LARGEST_SHARE))

    async def _look(self) -> float:
        """Read what is new and tell it to all, and return how long that computed."""
        patch, spent_s = await asyncio.get_running_loop().run_in_executor(self._threads, self._refresh)
        if patch is not None:
            async with self._came:
                self._told.append((self.page.version, patch))
                self._came.notify_all()
        return spent_s

    def _refresh(self) -> tuple[str | None, float]:
        begin_s = time.thread_time()
        patch = self.page.refresh()
        return None if patch is None else encode(patch), time.thread_time() - begin_s


def encode(value: dict[str, Any]) -> str:  # Any: JSON values
    """Write JSON in one line, as short as it goes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
