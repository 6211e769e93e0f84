"""What a study and whoever trains for it speak through."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Protocol

from headwater.errors import LineLost


class TwoWay(Protocol):
    """What a worker speaks through; whoever uses it when the other end is gone gets a LineLost."""

    def send(self, message: Any) -> None:  # Any: whatever can be pickled
        """Send a message."""

    def receive(self) -> Any:  # Any: as sent
        """Wait for the next message."""


class QueueLine:
    """A line to a thread of this process: its end, and what the other end does."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._outbox: SimpleQueue[Any] = SimpleQueue()

    def send(self, message: Any) -> None:  # Any: as above
        """Send a message, from the thread."""
        self._outbox.put(message)

    def receive(self) -> Any:  # Any: as above
        """Wait for the next message to the thread."""
        return self._inbox.get()

    def tell(self, messages: Sequence[Any]) -> None:  # Any: as above
        """Give the thread these messages."""
        for message in messages:
            self._inbox.put(message)

    def exchange(self, messages: Sequence[Any]) -> list[Any]:  # Any: as above
        """Give the thread these messages, and return all that it says from now on or has said; something at least."""
        self.tell(messages)
        said = [self._outbox.get()]
        while not self._outbox.empty():
            said.append(self._outbox.get())
        return said


class Line:
    """One end of a pipe; whoever uses it when the other end is gone gets a LineLost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Any) -> None:  # Any: whatever can be pickled
        """Send a message; pickled here, by far faster than by the connection itself."""
        try:
            with _noticing():
                self._connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except TypeError as error:  # another thread has closed this end in the middle: its handle is None
            raise LineLost from error

    def receive(self) -> Any:  # Any: as sent
        """Wait for the next message."""
        with _noticing():
            content = self._connection.recv_bytes()
        return pickle.loads(content)  # noqa: S301 # of the other end, which is the study's own

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
