"""Limits on connections that carry no token, so that silent or slow ones cannot keep users out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

Peer: TypeAlias = tuple[str, int]
"""The address and port of a client: one for each open connection."""

HEADERS_S = 10.0
"""Time that a client has to send the headers of its next request."""
MOST_ANONYMOUS = 512
"""Connections without a token, of all addresses together. The rest of the server's limit is for users with one."""
MOST_OF_ADDRESS = 64
"""Connections without a token from one address."""


@dataclass(slots=True)
class _Connection:
    transport: asyncio.Transport
    timer: asyncio.TimerHandle | None = None
    has_token: bool = False

    def wait(self, timeout_s: float) -> None:
        """Close the connection unless `stop_waiting` is called within the time."""
        self.stop_waiting()
        self.timer = asyncio.get_running_loop().call_later(timeout_s, self.transport.abort)

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ConnectionLimits:
    """All open connections of a server.

    At a limit, the oldest connection without a token is closed, not the newest refused: a client that has just come
    sends its token at once, a silent one never does.
    """

    def __init__(self, app: ASGIApp, headers_s: float = HEADERS_S) -> None:
        self._app = app
        self._headers_s = headers_s
        self._connections: dict[Peer, _Connection] = {}  # the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Its connection is not timed until the answer is complete.

        The API puts the user of a valid token into the request's state; from then on the connection may stay open.
        """
        connection = self._connections.get(_find_peer(scope))
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.stop_waiting()

        async def send_and_look(message: Message) -> None:
            connection.has_token = connection.has_token or "user" in scope.get("state", {})
            await send(message)

        try:
            await self._app(scope, receive, send_and_look)
        finally:
            if not connection.transport.is_closing():
                connection.wait(self._headers_s)

    def add(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Count a new connection, and make room for it."""
        self._connections[peer] = connection = _Connection(transport)
        connection.wait(self._headers_s)
        anonymous = [one for one, found in self._connections.items() if not found.has_token]
        of_address = [one for one in anonymous if one[0] == peer[0]]
        if len(of_address) > MOST_OF_ADDRESS:
            self._close(of_address[0])
        elif len(anonymous) > MOST_ANONYMOUS:
            self._close(anonymous[0])

    def _close(self, peer: Peer) -> None:
        transport = self._connections[peer].transport
        self.remove(peer)  # now: uvicorn reports the end only after it has accepted everybody who waits
        transport.abort()

    def remove(self, peer: Peer) -> None:
        """Forget a connection that is closed."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            connection.stop_waiting()

    def make_protocol(self) -> type[asyncio.Protocol]:
        """Return uvicorn's HTTP protocol with these limits, for `uvicorn.Config(http=...)`."""
        limits = self

        class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc] # uvicorn chooses the class when imported
            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                if self.client is not None:
                    limits.add(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client is not None:
                    limits.remove(self.client)
                super().connection_lost(exc)

        return LimitedProtocol


def _find_peer(scope: Scope) -> Peer:
    return tuple(scope.get("client") or ("", 0))
