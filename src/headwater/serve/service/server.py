"""Running the service on a socket of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.errors import StudyError
from headwater.report.page.html import SERVICE_PARTS, dashboard_html, queue_html
from headwater.serve.access import HEADERS as PAGE_HEADERS
from headwater.serve.connections import ConnectionLimits
from headwater.serve.service.answers import HEADERS, answer, refuse_failing, refuse_unknown, telling_errors
from headwater.serve.service.api import Api
from headwater.serve.service.coordinator import Coordinator
from headwater.serve.service.folders import ServiceFolder
from headwater.serve.service.isolation import Limits, check_interpreter
from headwater.serve.service.openapi import PLACES, describe_api, write_page
from headwater.serve.service.store import ServiceStore
from headwater.serve.service.values import Role
from headwater.trials import Device

ADMIN, PRINTED = "admin", "printed at the start"
MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What a service is started with."""

    storage: str
    folder: Path
    num_devices: int
    host: str
    port: int
    limits: Limits
    most_bytes: int
    longest_s: float
    """How long after it was submitted a study is ended at the latest."""
    first_uid: int | None
    """The system user of the first Headwater user; None: submitted code runs as the service does."""


def serve(settings: ServiceSettings, tell: Callable[[str, str | None], None]) -> None:
    """Serve until somebody interrupts; `tell` is given the URL and, on loopback, a token of an admin.

    Raises:
        StudyError: Nothing can listen there, or nobody could be told from anybody.
    """
    folder = ServiceFolder(settings.folder, settings.first_uid)
    with ServiceStore.open(settings.storage) as store:
        is_loopback = _is_loopback(settings.host)
        if not is_loopback and not any(token.note != PRINTED for token in store.tokens()):
            raise StudyError(
                f"--host {settings.host} is open to other machines, and nobody has a token yet; "
                "make one first with headwater token create USER"
            )
        folder.open()
        try:
            if settings.first_uid is not None:
                check_interpreter(folder.find("", 0))
            store.claim(socket.gethostname(), str(settings.folder.resolve()))
            with _listen(settings.host, settings.port) as listening:
                token = _make_admin(store) if is_loopback else None
                shown = f"[{settings.host}]" if ":" in settings.host else settings.host
                url = f"http://{shown}:{listening.getsockname()[1]}"
                app = build_app(store, folder, settings, lambda: tell(url, token))
                _run(app, listening)
        finally:
            folder.close()


def build_app(
    store: ServiceStore, folder: ServiceFolder, settings: ServiceSettings, tell: Callable[[], None]
) -> Starlette:
    """Build the application; its coordinator runs for as long as it does."""
    devices = [Device(name=f"cpu:{place}") for place in range(settings.num_devices)]
    coordinator = Coordinator(store, folder, devices, settings.limits)
    api = Api(coordinator, settings.most_bytes, settings.longest_s)

    @asynccontextmanager
    async def coordinating(app: Starlette) -> AsyncGenerator[None, None]:
        task = asyncio.create_task(coordinator.run())
        task.add_done_callback(_end_with)
        tell()
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    routes = [Route(one.path, telling_errors(getattr(api, one.name)), methods=[one.method]) for one in PLACES]
    routes += [Route(path, _list_places) for path in ("/v1", "/v1/")]
    routes += [Route("/", _page), Route("/study", _study_page), Route("/static/{name}", _static)]
    return Starlette(
        routes=[*routes, Route("/v1/openapi.json", _document)],
        lifespan=coordinating,
        exception_handlers={HTTPException: refuse_unknown, Exception: refuse_failing},
    )


async def _page(request: Request) -> Response:
    return Response(queue_html(), media_type="text/html", headers=PAGE_HEADERS)


async def _study_page(request: Request) -> Response:
    return Response(dashboard_html(), media_type="text/html", headers=PAGE_HEADERS)


async def _static(request: Request) -> Response:
    part = SERVICE_PARTS.get(request.path_params["name"])
    if part is None:
        raise HTTPException(404)
    return Response(part.read(), media_type=part.media_type, headers=PAGE_HEADERS)


async def _list_places(request: Request) -> Response:
    return Response(write_page(), media_type="text/html", headers=HEADERS)


async def _document(request: Request) -> Response:
    return answer(describe_api())


def _end_with(task: asyncio.Task[None]) -> None:
    """End the whole service where the coordinator has failed: without it, nothing would run and nobody be told."""
    if not task.cancelled() and task.exception() is not None:
        task.print_stack()
        os._exit(1)


def _make_admin(store: ServiceStore) -> str:
    """Return a token for whoever reads what the service prints; that of its last start is none any more."""
    store.add_user(ADMIN, Role.ADMIN, {})
    store.revoke_tokens(ADMIN, note=PRINTED)
    return store.create_token(ADMIN, PRINTED)


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StudyError(
            f"nothing can listen at {host} port {port}: {reason}; give another --port, or 0 for any that is free"
        ) from error


def _run(app: Starlette, listening: socket.socket) -> None:
    limits = ConnectionLimits(app)
    config = uvicorn.Config(
        limits,
        http=limits.make_protocol(),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
