"""What requests have in common: who asks, how much may be sent, how errors are told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headwater.errors import HeadwaterError, ServiceError, StoreError, StudyError
from headwater.report.reading import make_strict

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LONGEST_WAIT_S = 60.0


def answer(value: Any, status: int = 200) -> Response:  # Any: a JSON value
    """Answer with JSON, in which what is not finite is null."""
    content = json.dumps(make_strict(value), allow_nan=False)
    return Response(content, status_code=status, media_type="application/json", headers=HEADERS)


def telling_errors(ask: Answer) -> Answer:
    """Have what Headwater has to say reach whoever asked, as JSON."""

    async def tell(request: Request) -> Response:
        try:
            return await ask(request)
        except ServiceError as error:
            return refuse(error.status, str(error))
        except StoreError as error:
            return refuse(503, str(error))
        except HeadwaterError as error:
            return refuse(409, str(error))

    return tell


def refuse(status: int, message: str) -> Response:
    """Say no."""
    response = answer({"error": message}, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        response.headers["Retry-After"] = "2"
    return response


async def refuse_unknown(request: Request, error: Exception) -> Response:
    """Say that there is nothing at this place, or not by this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refuse(
        status, f"{request.method} {request.url.path[:100]} is not possible here; /v1/openapi.json lists what is"
    )


async def refuse_failing(request: Request, error: Exception) -> Response:
    """Say that the service itself is at fault; what happened is in what it prints."""
    del request, error
    return refuse(500, "the service has failed at this request; its administrator can see why")


@contextmanager
def refusing(status: int) -> Iterator[None]:
    """Give what is wrong with a request its status."""
    try:
        yield
    except StudyError as error:
        raise ServiceError(str(error), status) from error


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return what was sent.

    Raises:
        ServiceError: It is more than may be, or was not sent to its end.
    """
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > most_bytes:
                raise ServiceError(f"the body has more than the {most_bytes:,} bytes that are possible; send less", 413)
    except ClientDisconnect:
        raise ServiceError("the body was not sent to its end", 400) from None
    return bytes(content)


def find_bearer(request: Request) -> str | None:
    """Return the token that a request carries."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" and 0 < len(token) <= 200 else None


def read_query(request: Request, name: str, most: float, otherwise: float = 0) -> float:
    """Return a number of the query, no larger than it may be.

    Raises:
        ServiceError: It is none.
    """
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ServiceError(f"{name} is {text!r:.40}; it must be a whole number of at least 0", 422)
    return min(float(text), most) if most < float("inf") else int(text)
