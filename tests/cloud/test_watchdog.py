"""What instances run when they start: real shells, with a metadata service on loopback."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.execute.clusters import await_truth

from headwater.cloud.ec2 import Ec2Settings
from headwater.cloud.watchdog import LEASE_PATH, write_user_data, write_watchdog


class Metadata(ThreadingHTTPServer):
    """What an instance can read about itself; without a token it is told nothing."""

    daemon_threads = True
    lease = ""
    num_reads = 0


class Answers(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        self._answer("secret")

    def do_GET(self) -> None:
        is_known = self.headers["X-aws-ec2-metadata-token"] == "secret" and self.path == f"/{LEASE_PATH}"
        self._answer(self.server.lease if is_known else "")
        self.server.num_reads += 1

    def _answer(self, text: str) -> None:
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Machine:
    """A shell that runs a watchdog; to shut down leaves a file."""

    def __init__(self, folder: Path, metadata: Metadata, lease_until: float) -> None:
        self._down = folder / "down"
        command = folder / "shutdown"
        command.write_text(f"#!/bin/sh\ntouch {self._down}\n")
        command.chmod(0o755)
        url = f"http://127.0.0.1:{metadata.server_address[1]}"
        script = write_watchdog(int(lease_until), metadata=url, look_s=0.05)
        path = f"{folder}:{os.environ['PATH']}"
        self.process = subprocess.Popen(["bash", "-c", script], env={**os.environ, "PATH": path})

    @property
    def is_down(self) -> bool:
        return self._down.exists()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def test_a_machine_ends_when_its_lease_has_passed_and_not_before(tmp_path: Path, metadata: Metadata) -> None:
    metadata.lease = str(int(time.time()) + 1000)
    machine = Machine(tmp_path, metadata, time.time() - 1000)
    try:
        await_truth(lambda: metadata.num_reads > 3)
        assert not machine.is_down, "the lease was renewed"
        metadata.lease = str(int(time.time()) - 10)
        await_truth(lambda: machine.is_down)
    finally:
        machine.end()


@pytest.mark.parametrize("lease", ["", "soon", "99999999999999x"])
def test_a_lease_that_cannot_be_read_keeps_no_machine_alive(tmp_path: Path, metadata: Metadata, lease: str) -> None:
    metadata.lease = lease
    machine = Machine(tmp_path, metadata, time.time() - 10)
    try:
        await_truth(lambda: machine.is_down)
    finally:
        machine.end()


def test_user_data_is_a_script_that_begins_with_the_watchdog(tmp_path: Path) -> None:
    settings = Ec2Settings(image="ami-1", instance="c5.large", head="10.0.0.1:6379", init_script="echo 'hello'")
    script = write_user_data(settings, 123)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert script.index("nohup setsid") < script.index("echo 'hello'") < script.index("ray start")
    assert len(script.encode()) < 16384, "more EC2 does not take"
