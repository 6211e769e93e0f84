"""Speaking with a service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from headwater.errors import ServiceError

Json: TypeAlias = dict[str, Any]  # Any: JSON values

TIMEOUT_S = 30.0
WAIT_S = 25
"""So long does one request wait for news."""
PATIENCE_S, SHORT_PATIENCE_S = 60.0, 2.0
"""A service that does not answer is asked again for so long: the first, where it was there before and may be started
anew."""
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Service:
    """A service that runs studies, as `Study(executor=...)` takes it.

    Args:
        url: Where it listens, such as `http://lab-3:8700`; the token may stand before the host, as in
            `http://hw_...@lab-3:8700`.
        token: What `headwater token create` printed.
        share_lanes: Train in one process with studies of others who submit the same files and say so too. Results are
            the same; see docs/service.md for who can see what then.

    Raises:
        ServiceError: That is no such URL.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    share_lanes: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in SCHEMES or not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise ServiceError(f"{self.shown} is not where a service can be; give a URL such as http://127.0.0.1:8700")
        shown = f"[{host}]" if ":" in host else host
        object.__setattr__(self, "token", self.token or parts.username)
        object.__setattr__(self, "url", f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else ""))

    @property
    def shown(self) -> str:
        """The URL without a token."""
        return repr(self.url.rpartition("@")[2]) if "@" in self.url else repr(self.url)

    def submit(self, submission: Json) -> Json:
        """Submit a study, once however often this has to be tried."""
        key = uuid4().hex
        return _try(lambda: self.ask("POST", "/v1/studies", submission, {"Idempotency-Key": key}), SHORT_PATIENCE_S)

    def list_studies(self) -> list[Json]:
        """Return all studies that are to be seen."""
        return list(_try(lambda: self.ask("GET", "/v1/studies"), SHORT_PATIENCE_S)["studies"])

    def show(self, study: str, version: int | None = None) -> Json:
        """Return a study; with a version, when it has changed since or a while has passed."""
        query = "" if version is None else "?" + urlencode({"wait": WAIT_S, "version": version})
        patience_s = SHORT_PATIENCE_S if version is None else PATIENCE_S
        return _try(lambda: self.ask("GET", f"/v1/studies/{quote(study, safe='')}{query}"), patience_s)

    def read_log(self, study: str, offset: int, *, wait: bool) -> Json:
        """Return what a study has printed from a place on; if asked, when there is more or it has ended."""
        query = urlencode({"offset": offset, "wait": WAIT_S if wait else 0})
        patience_s = PATIENCE_S if wait and offset else SHORT_PATIENCE_S
        return _try(lambda: self.ask("GET", f"/v1/studies/{quote(study, safe='')}/logs?{query}"), patience_s)

    def change(self, study: str, what: str, value: Json | None = None) -> Json:
        """Stop, pause or resume a study, or give it another priority."""
        return self.ask("POST", f"/v1/studies/{quote(study, safe='')}/{what}", value or {})

    def remove(self, study: str) -> Json:
        """Remove a study that has ended."""
        return self.ask("DELETE", f"/v1/studies/{quote(study, safe='')}")

    def fetch(self, study: str, file: IO[bytes], *, with_weights: bool) -> None:
        """Write the copy of a study that the service sends into a file."""
        path = f"/v1/studies/{quote(study, safe='')}/archive?weights={int(with_weights)}"
        with closing(self._connect(timeout_s=300.0)) as connection:
            response = self._send(connection, "GET", path)
            if response.status != 200:
                raise self._explain(response)
            while chunk := self._read(response, 2**20):
                file.write(chunk)

    def ask(self, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None) -> Json:
        """Return what the service answers.

        Raises:
            ServiceError: It refuses, or does not answer.
        """
        with closing(self._connect(TIMEOUT_S + WAIT_S)) as connection:
            response = self._send(connection, method, path, body, headers)
            if response.status >= 300:
                raise self._explain(response)
            try:
                answer: Json = json.loads(self._read(response))
            except ValueError as error:
                raise ServiceError(f"{self.shown} has broken off its answer: {error}") from error
            return answer

    def _read(self, response: HTTPResponse, most_bytes: int | None = None) -> bytes:
        try:
            return response.read(most_bytes)
        except (HTTPException, OSError) as error:
            raise ServiceError(f"{self.shown} has broken off its answer: {error}") from error

    def _connect(self, timeout_s: float) -> HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        build = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return build(parts.hostname, parts.port, timeout=timeout_s)

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPResponse:
        sent = {"Accept": "application/json", **(headers or {})}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, content, sent)
            return connection.getresponse()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServiceError(
                f"{self.shown} does not answer: {reason}; check the URL, and that `headwater serve` runs there"
            ) from error

    def _explain(self, response: HTTPResponse) -> ServiceError:
        try:
            told = json.loads(response.read(2**16))["error"]
        except (ValueError, LookupError, TypeError, HTTPException, OSError):
            told = f"{self.shown} answers with status {response.status}, as no Headwater service does"
        hint = "; give it by --token or HEADWATER_TOKEN" if response.status == 401 and self.token is None else ""
        return ServiceError(f"{told}{hint}", response.status)


def _try(ask: Callable[[], Json], patience_s: float) -> Json:
    """Ask again while there is no answer, too much was asked, or the database of the service is away; not for ever."""
    give_up, pause_s = time.monotonic() + patience_s, 0.1
    while True:
        try:
            return ask()
        except ServiceError as error:
            if error.status not in (0, 429, 503) or time.monotonic() > give_up:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 2.0)
