"""Running the dashboard on a socket of its own."""

from __future__ import annotations

import gc
import secrets
import socket
from collections.abc import Callable

import uvicorn

from headwater.errors import StudyError
from headwater.serve.access import Access
from headwater.serve.app import Served, build_app
from headwater.serve.connections import ConnectionLimits


def serve(served: Served, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until somebody interrupts; `tell` is given the URL, with its token, when it can be opened.

    Raises:
        StudyError: Nothing can listen there.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StudyError(
            f"nothing can listen at {host} port {port}: {reason}; give another --port, or 0 for any that is free"
        ) from error
    with listening:
        bound = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = build_app(served, Access.at(token, host, bound))
        limits = ConnectionLimits(app)
        config = uvicorn.Config(
            limits,
            http=limits.make_protocol(),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        # A study in memory is many small objects that stay; to look for others among them again and again, as Python
        # does while they are made, takes a fifth of the time of reading it.
        gc.set_threshold(100_000, 50, 100)
        tell(f"http://{f'[{host}]' if ':' in host else host}:{bound}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])
