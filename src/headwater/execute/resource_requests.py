"""What a Ray autoscaler is asked for, taken back when the process that has asked is gone, however it ended.

Ray keeps a request for as long as the cluster lives. So a shell waits at a pipe that only this process holds open: when
that is closed and the last word was that something is asked for, the shell has Python take it back. It is in a session
of its own, and outlives a SIGKILL of this process, though not the end of its machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from headwater.execute.ray_connection import connect, disconnect, find_address, request_bundles

ASKED, TAKEN_BACK = "asked", "taken-back"
_WAIT = f'while read -r word; do last=$word; done; if [ "$last" = {ASKED} ]; then exec "$@"; fi'


class ResourceRequests:
    """Asks the autoscaler of the cluster that this process is connected to; see `AutoscaledCluster`."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[str] | None = None

    def __call__(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Have room for these, and nothing when this process ends."""
        if bundles:
            self._tell(ASKED)
        request_bundles(bundles)
        if not bundles:
            self._tell(TAKEN_BACK)

    def _tell(self, word: str) -> None:
        if self._shell is None:
            command = [sys.executable, "-m", "headwater.execute.resource_requests", find_address()]
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT, "headwater-requests", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
        assert self._shell.stdin is not None
        with suppress(BrokenPipeError):  # somebody has ended the shell
            self._shell.stdin.write(f"{word}\n")
            self._shell.stdin.flush()
        if word == TAKEN_BACK:
            shell, self._shell = self._shell, None
            shell.communicate()


def take_back(address: str) -> None:
    """Ask the autoscaler of a cluster for nothing any more."""
    connect(address, None)
    request_bundles([])
    disconnect()


if __name__ == "__main__":
    take_back(sys.argv[1])
