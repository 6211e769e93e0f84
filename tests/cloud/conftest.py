"""EC2 as moto plays it, behind a real HTTP server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest


@pytest.fixture
def ec2_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a server, and give everybody credentials that only it accepts."""
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urlopen(f"{url}/moto-api/reset", data=b"").close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield url
    finally:
        server.stop()
