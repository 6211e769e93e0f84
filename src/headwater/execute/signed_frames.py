"""What a study and a worker on another machine speak through: a socket whose both ends prove that they know a key.

Nothing that arrives is unpickled before it is known to come from somebody who has the key. At first each end proves
that it has it by answering the other's random challenge. From then on every frame carries a code that is made of the
key, both challenges, the direction and the frame's number, so that nobody on the way can change, repeat, leave out or
add one. What is sent is not hidden from those who can read the network.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import Protocol

from headwater.errors import LineLost, StudyError

MAGIC = b"headwater join 1"
CHALLENGE_BYTES = 32
GREETING_S = 10.0
"""So long may it take until both ends have proved themselves."""
BEAT_S = 5.0
"""So often does an end that has nothing to say let the other know that it is there."""
SILENCE_S = 30.0
"""An end that was silent for so long is gone."""
PIECE_BYTES = 1 << 20
SHORT_BYTES = 1 << 16
"""What no frame exceeds in which two ends introduce themselves."""
LONGEST_BYTES = 1 << 36
_HEAD = struct.Struct(">BQ")
_CODE_BYTES = 32


class Frame(IntEnum):
    """What a frame holds."""

    HELLO = 1
    """Who an end is, or why it does not want the other, as JSON."""
    MESSAGE = 2
    """A pickled message, from the study to what trains or back."""
    BEAT = 3
    """Nothing."""
    LEAVING = 4
    """From a worker: it wants to go, for this reason."""
    MEETING = 5
    """From a worker: where it can be met by others that train a trial with it."""
    LOST = 6
    """From a worker: what trained has died, and why, as JSON."""
    END = 7
    """From a study: it needs the worker no more."""


class Greeting(Protocol):
    """Has both ends prove themselves; returns the keys that frames are signed with, to the other end and from it."""

    def __call__(self, sock: socket.socket, key: bytes) -> tuple[bytes, bytes]:
        """Greet the other end."""


def greet_worker(sock: socket.socket, key: bytes) -> tuple[bytes, bytes]:
    """Have a worker prove that it knows the key, then prove it to the worker.

    Raises:
        LineLost: It does not, or says something else.
    """
    mine, until_s = secrets.token_bytes(CHALLENGE_BYTES), time.monotonic() + GREETING_S
    with _noticing():
        sock.sendall(MAGIC + mine)
        answer = _read(sock, CHALLENGE_BYTES + _CODE_BYTES, until_s)
        challenges = mine + answer[:CHALLENGE_BYTES]
        if not hmac.compare_digest(answer[CHALLENGE_BYTES:], _sign(key, b"worker", challenges)):
            raise LineLost("a worker has another key")
        sock.sendall(_sign(key, b"study", challenges))
    return _sign(key, b"to the worker", challenges), _sign(key, b"to the study", challenges)


def greet_study(sock: socket.socket, key: bytes) -> tuple[bytes, bytes]:
    """Prove to a study that this worker knows the key, and have it do the same.

    Raises:
        StudyError: It has another key, or is no study.
        LineLost: It is gone.
    """
    until_s = time.monotonic() + GREETING_S
    with _noticing():
        if _read(sock, len(MAGIC), until_s) != MAGIC:
            raise StudyError("what listens there is no study that workers of this version can join")
        theirs, mine = _read(sock, CHALLENGE_BYTES, until_s), secrets.token_bytes(CHALLENGE_BYTES)
        challenges = theirs + mine
        sock.sendall(mine + _sign(key, b"worker", challenges))
        try:
            proof = _read(sock, _CODE_BYTES, until_s)
        except LineLost as cause:
            raise StudyError("the study has another key, and has hung up") from cause
        if not hmac.compare_digest(proof, _sign(key, b"study", challenges)):
            raise StudyError("what listens there does not have the key, and may be no study")
    return _sign(key, b"to the study", challenges), _sign(key, b"to the worker", challenges)


class SignedSocket:
    """One end of a socket, after both have proved themselves; whoever uses it when the other is gone gets a LineLost.

    What is sent leaves by a thread of its own, so that an end that does not listen holds up nobody.

    Raises:
        LineLost: The other end is gone, or does not prove itself.
        StudyError: As the greeting says.
    """

    def __init__(self, sock: socket.socket, key: bytes, greet: Greeting) -> None:
        self._socket = sock
        sock.settimeout(GREETING_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            to_key, from_key = greet(sock, key)
        except BaseException:
            sock.close()
            raise
        sock.settimeout(SILENCE_S)
        self._seal, self._expect = _Seal(to_key), _Seal(from_key)
        self._outbox: SimpleQueue[tuple[Frame, bytes] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write_frames, daemon=True)
        self._writer.start()

    @property
    def address(self) -> str:
        """Where this end is, as the other may reach it."""
        return str(self._socket.getsockname()[0])

    def send(self, kind: Frame, content: bytes = b"") -> None:
        """Send a frame, now or as soon as the other end takes it; that this one is gone is heard by who receives."""
        self._outbox.put((kind, content))

    def receive(self, most_bytes: int = LONGEST_BYTES) -> tuple[Frame, bytes]:
        """Wait for the next frame that says something.

        Raises:
            LineLost: The other end is gone, or this is nothing that it has sent.
        """
        while True:
            with _noticing():
                kind, content = self._read_frame(most_bytes)
            if kind is not Frame.BEAT:
                return kind, content

    def close(self) -> None:
        """Give this end up when all is sent."""
        self._outbox.put(None)

    def drop(self) -> None:
        """Give this end up now."""
        self.close()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def await_close(self, timeout_s: float) -> None:
        """Wait until all is sent after `close`."""
        self._writer.join(timeout_s)

    def _read_frame(self, most_bytes: int) -> tuple[Frame, bytes]:
        head = _read(self._socket, _HEAD.size)
        code = _read(self._socket, _CODE_BYTES)
        kind, num_bytes = _HEAD.unpack(head)
        if num_bytes > most_bytes:
            raise LineLost("a frame is longer than any may be")
        content = _read(self._socket, num_bytes)
        if not hmac.compare_digest(code, self._expect.sign(head, content)):
            raise LineLost("a frame was changed on its way")
        if kind not in list(Frame):
            raise LineLost("a frame is of a kind that only another version knows")
        return Frame(kind), content

    def _write_frames(self) -> None:
        with suppress(LineLost), _noticing():
            while (item := self._take()) is not None:
                kind, content = item
                head = _HEAD.pack(kind, len(content))
                _write(self._socket, head + self._seal.sign(head, content))
                _write(self._socket, content)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _take(self) -> tuple[Frame, bytes] | None:
        try:
            return self._outbox.get(timeout=BEAT_S)
        except Empty:
            return Frame.BEAT, b""


class _Seal:
    """Makes the codes of the frames of one direction, each of which has its number."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def sign(self, head: bytes, content: bytes) -> bytes:
        code = hashlib.blake2b(self._number.to_bytes(8, "big") + head, key=self._key, digest_size=_CODE_BYTES)
        code.update(content)
        self._number += 1
        return code.digest()


def _sign(key: bytes, role: bytes, challenges: bytes) -> bytes:
    return hmac.digest(key, MAGIC + challenges + role, "sha256")


def _read(sock: socket.socket, num_bytes: int, until_s: float | None = None) -> bytes:
    """Read so many bytes, by then if that is said; memory is taken as they come, not as they are promised."""
    content = bytearray()
    while len(content) < num_bytes:
        if until_s is not None:
            sock.settimeout(max(until_s - time.monotonic(), 0.001))
        piece = sock.recv(min(num_bytes - len(content), PIECE_BYTES))
        if not piece:
            raise LineLost("the other end has hung up")
        content += piece
    return bytes(content)


def _write(sock: socket.socket, content: bytes) -> None:
    """Write all of it; each piece may take a while, and all of them any time."""
    left = memoryview(content)
    while left:
        left = left[sock.send(left[:PIECE_BYTES]) :]


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except TimeoutError as cause:
        raise LineLost("the other end is silent") from cause
    except OSError as cause:
        raise LineLost(str(cause)) from cause
