"""A raylet under a shell that waits at a pipe: when nobody holds that open any more, the shell ends it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from headwater.cloud.ray_settings import NODE_LABEL

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
