"""Raylets under a shell that waits at a pipe: when nobody holds that open any more, the shell ends them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from headwater.cloud.ray_settings import NODE_LABEL, QUICK_TO_NOTICE
from headwater.errors import StudyError

START_S = 60.0
"""So long may the head take to answer."""
STORE_BYTES = 100 << 20
"""The object store of a raylet that was given no other."""
START_RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
"""The command that runs a raylet; options follow."""

_SUPERVISE = 'shift 2; ("$@"; kill -KILL 0) <&- & read -r _; trap "" TERM; kill -TERM 0; sleep 2; kill -KILL 0'
"""Runs a command until it ends or the pipe is closed, and ends all that it has started."""


class Raylet:
    """A `ray start` under the shell that ends it.

    Args:
        study: For whom it runs.
        name: What it is called on the command line of the shell.
        command: What is started.
        log: Where it writes.
        environment: What its environment has besides.
    """

    def __init__(
        self, study: str, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISE, NODE_LABEL, study, name, *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", **(environment or {})},
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        """Whether the shell is there, and with it all that it has started."""
        return self._shell.poll() is None

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._shell.stdin is not None
        return self._shell.stdin

    def end(self) -> None:
        """Close the pipe, at which the shell ends everything."""
        with suppress(OSError):
            self._pipe.close()

    def kill(self) -> None:
        """End everything at once, the shell too, and let nothing clean up."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Return when all is gone."""
        self._shell.wait()

    def read_log(self) -> str:
        """Return the last that it has written, in one line."""
        return " ".join(self._log.read_text(errors="replace").split())[-500:]


class RayHead:
    """The head of a Ray cluster on this machine. It has no devices, and ends with this process.

    Args:
        study: For whom it runs.
        host: At which address of this machine nodes reach it.
        port: At which port; 0 for a free one.
        store_bytes: How large its object store is; None for Ray's own choice.
        environment: What its environment has besides.

    Raises:
        StudyError: It does not answer.
    """

    def __init__(
        self,
        study: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        store_bytes: int | None = STORE_BYTES,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))  # the names of sockets must be short
        port = port or _find_port(host)
        self.address = f"{host}:{port}"
        options = [
            *("--head", "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false"),
            *(f"--port={port}", f"--node-ip-address={host}", f"--temp-dir={self.folder / 'head'}"),
            f"--system-config={json.dumps(QUICK_TO_NOTICE)}",
            *([] if store_bytes is None else [f"--object-store-memory={store_bytes}"]),
        ]
        self._raylet = Raylet(study, "head", [*START_RAY, *options], self.folder / "head.log", environment)
        end_s = time.monotonic() + START_S
        while not _answers(host, port):
            if time.monotonic() > end_s or not self._raylet.is_alive:
                told = self._raylet.read_log()
                self.close()
                raise StudyError(f"the Ray head on this machine did not start in {START_S:.0f} s: {told}")
            time.sleep(0.05)

    def end(self) -> None:
        """Begin to end it."""
        self._raylet.end()

    def close(self) -> None:
        """End it, and remove its files."""
        self._raylet.end()
        self._raylet.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _find_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def _answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
