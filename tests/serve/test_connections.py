"""Limits on connections: whoever waits with a token stays, and nobody takes all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.types import Receive, Scope, Send
from tests.serve.conftest import serve

from headwater.serve.connections import CLIENT, MOST_OF_ADDRESS, MOST_OF_USER, ConnectionLimits


class FakeTransport(asyncio.Transport):
    """A connection that can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True

    def is_closing(self) -> bool:
        return self.is_cut


class Clients:
    """Clients of one address, and an application that identifies them and answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.limits = ConnectionLimits(self._answer)
        self.transports: list[FakeTransport] = []
        self._num_identified = 0
        self._came = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    def connect(self) -> None:
        self.transports.append(FakeTransport())
        self.limits.add(("10.0.0.1", len(self.transports)), self.transports[-1])

    async def ask(self, user: str) -> None:
        """Connect and send a request with a token; return when the token is known."""
        self.connect()
        scope = {"client": ("10.0.0.1", len(self.transports)), "state": {}, "user": user}
        self._tasks.append(asyncio.create_task(self.limits(scope, None, None)))  # type: ignore[arg-type] # not used
        wanted = self._num_identified + 1
        async with self._came:
            await self._came.wait_for(lambda: self._num_identified == wanted)

    async def end(self) -> None:
        self.may_answer.set()
        await asyncio.gather(*self._tasks)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][CLIENT] = scope["user"]
        async with self._came:
            self._num_identified += 1
            self._came.notify_all()
        await self.may_answer.wait()


def test_a_request_that_waits_with_a_token_is_not_cut_off_by_silent_connections() -> None:
    async def wait_among_silent_ones() -> list[bool]:
        clients = Clients()
        await clients.ask("ada")
        for _ in range(MOST_OF_ADDRESS + 1):
            clients.connect()
        await clients.end()
        return [one.is_cut for one in clients.transports]

    assert asyncio.run(wait_among_silent_ones()) == [False, True] + [False] * MOST_OF_ADDRESS


def test_one_user_has_so_many_connections_and_others_keep_theirs() -> None:
    async def take_too_many() -> list[bool]:
        clients = Clients()
        await clients.ask("ben")
        for _ in range(MOST_OF_USER + 1):
            await clients.ask("ada")
        clients.connect()
        await clients.end()
        return [one.is_cut for one in clients.transports]

    assert asyncio.run(take_too_many()) == [False, True] + [False] * (MOST_OF_USER + 1)


@pytest.mark.timeout(60)
def test_a_dashboard_cuts_off_a_client_that_never_sends_its_headers(plain: Path) -> None:
    async def wait_for_the_end(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    with serve(plain) as url:
        port = urlsplit(url).port
        assert port is not None
        assert asyncio.run(wait_for_the_end(port)) == b""
