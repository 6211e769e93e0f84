"""Who may ask the dashboard anything: whoever knows its token, by a name that is this server's own.

A page from elsewhere in the same browser can send requests to loopback, and with a name of its own that it lets point
there it could read the answers too; hence the names that are answered to are few, and the cookie goes with requests of
our own page alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.serve.connections import CLIENT

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request must show."""

    token: str
    hosts: frozenset[str]
    """The values of the Host header that are answered, in lower case."""
    cookie: str
    """The name of the cookie that holds the token; browsers do not tell ports apart, so it has ours."""

    @classmethod
    def at(cls, token: str, host: str, port: int) -> Access:
        """Admit requests to a server that listens there."""
        shown = f"[{host}]" if ":" in host else host
        names = {shown.lower(), *LOOPBACK_NAMES}
        return cls(token=token, hosts=frozenset(f"{name}:{port}" for name in names), cookie=f"headwater-{port}")

    def is_known(self, given: str | None) -> bool:
        """Tell whether this is the token, in a time that says nothing of how much of it is right."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


class AccessCheck:
    """Stands before the application: refuses who does not know the token, and adds what browsers must heed."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        answer = self._check(scope, Headers(scope=scope))
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    def _check(self, scope: Scope, headers: Headers) -> Response | None:
        """Return what is answered instead of the application; None where that may answer."""
        host = headers.get("host", "").lower()
        if host not in self._access.hosts:
            return PlainTextResponse("this dashboard does not answer to that name\n", status_code=421)
        origin = headers.get("origin")
        if scope["method"] != "GET" and origin != f"http://{host}":
            return PlainTextResponse("only the dashboard's own page may ask for that\n", status_code=403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if "token" in query:
            return self._enter(scope, query)
        if self._access.is_known(self._find_cookie(headers)) or self._access.is_known(_find_bearer(headers)):
            scope.setdefault("state", {})[CLIENT] = "owner"
            return None
        return PlainTextResponse(
            "this dashboard wants its token; open the URL that `headwater dashboard` printed\n", status_code=401
        )

    def _enter(self, scope: Scope, query: Mapping[str, str]) -> Response:
        """Have a browser that came with the right token keep it as a cookie, out of sight."""
        if not self._access.is_known(query["token"]):
            return PlainTextResponse(
                "this is not the token of this dashboard; open the URL that it printed last\n", status_code=401
            )
        rest = urlencode({name: value for name, value in query.items() if name != "token"})
        answer = Response(status_code=303, headers={"location": "/" + (f"?{rest}" if rest else "")})
        answer.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="strict", path="/")
        return answer

    def _find_cookie(self, headers: Headers) -> str | None:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._access.cookie)
        except CookieError:
            return None
        return None if found is None else found.value


def _find_bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else None
