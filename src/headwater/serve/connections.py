"""Limits on connections, so that silent, slow or greedy clients cannot keep users out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

Peer: TypeAlias = tuple[str, int]
"""The address and port of a client: one for each open connection."""

CLIENT = "client"
"""The key of a request's state under which the application puts the name of the user whose token it has checked."""
HEADERS_S = 10.0
"""Time that a client has to send the headers of its next request."""
MOST_ANONYMOUS = 512
"""Connections without a token, of all addresses together. The rest of the server's limit is for users with one."""
MOST_OF_ADDRESS = 64
"""Connections without a token from one address."""
MOST_OF_USER = 128
"""Connections with the token of one user."""


@dataclass(slots=True)
class _Connection:
    transport: asyncio.Transport
    timer: asyncio.TimerHandle | None = None
    scope: Scope = field(default_factory=dict)
    """The latest request."""
    user: str | None = None

    def find_user(self) -> str | None:
        """Return whose token the connection has carried; None before the application has checked one."""
        self.user = self.scope.get("state", {}).get(CLIENT, self.user)
        return self.user

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

    At a limit, the oldest connection is closed, not the newest refused: a client that has just come sends its token at
    once, a silent one never does.
    """

    def __init__(self, app: ASGIApp, headers_s: float = HEADERS_S) -> None:
        self._app = app
        self._headers_s = headers_s
        self._connections: dict[Peer, _Connection] = {}  # the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Its connection is not timed until the answer is complete."""
        connection = self._connections.get(_find_peer(scope))
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.stop_waiting()
        connection.find_user()
        connection.scope = scope
        try:
            await self._app(scope, receive, send)
        finally:
            if not connection.transport.is_closing():
                connection.wait(self._headers_s)

    def add(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Count a new connection, and make room for it."""
        self._connections[peer] = connection = _Connection(transport)
        connection.wait(self._headers_s)
        by_user: dict[str | None, list[Peer]] = defaultdict(list)
        for one, found in self._connections.items():
            by_user[found.find_user()].append(one)
        anonymous = by_user.pop(None)
        of_address = [one for one in anonymous if one[0] == peer[0]]
        if len(of_address) > MOST_OF_ADDRESS:
            self._close(of_address[0])
        elif len(anonymous) > MOST_ANONYMOUS:
            self._close(anonymous[0])
        for of_user in by_user.values():
            for one in of_user[: max(len(of_user) - MOST_OF_USER, 0)]:
                self._close(one)

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

        class LimitedProtocol(H11Protocol):  # whose headers have a limit, other than those of httptools
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
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
