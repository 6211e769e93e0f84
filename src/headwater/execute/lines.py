"""What a study and a process that trains for it speak through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from headwater.errors import LineLost


class Line:
    """One end of a pipe; whoever uses it when the other end is gone gets a LineLost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Any) -> None:  # Any: whatever can be pickled
        """Send a message."""
        with _noticing():
            self._connection.send(message)

    def receive(self) -> Any:  # Any: as sent
        """Wait for the next message."""
        with _noticing():
            return self._connection.recv()

    def has_message(self) -> bool:
        """Tell whether there is anything to receive, if only that the other end is gone."""
        return self._connection.poll()

    def fileno(self) -> int:
        """Return what the system knows this end by."""
        return self._connection.fileno()

    def close(self) -> None:
        """Give this end up."""
        self._connection.close()


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as cause:
        raise LineLost from cause
