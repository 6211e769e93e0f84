"""Where workers join a study: the study's side of it.

Each worker has a thread that listens to it, and all that is heard goes into one queue, which the executor takes from.
So no worker can hold up another, and whoever knocks without the key is dealt with beside all that.
"""

from __future__ import annotations

import json
import pickle
import platform
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from headwater.errors import LineLost, StudyError
from headwater.execute.file_requests import FileRequest, PieceRequest, answer_request
from headwater.execute.lines import pack_message
from headwater.execute.serving import Message
from headwater.execute.signed_frames import SHORT_BYTES, Frame, SignedSocket, greet_worker
from headwater.store import TemporaryFolder
from headwater.trials import Device

MOST_KNOCKING = 32
"""So many may be about to join at the same time."""
PARTING_S = 5.0
"""So long may it take until workers have heard that they are needed no more."""
BREATH_S = 0.1
"""So long is waited when a connection cannot be taken."""
EVERYWHERE = ("0.0.0.0", "::")
SCHEME = "tcp"

Json: TypeAlias = dict[str, Any]  # Any: JSON values


@dataclass(frozen=True, slots=True, eq=False)
class JoinedLine:
    """The study's end of the line to a worker that has joined."""

    device: Device
    node: str
    """On which machine it is."""
    is_home: bool
    """Whether it has the files of the study."""
    socket: SignedSocket

    def send(self, message: Message) -> None:
        """Send a message, as soon as the worker takes it."""
        self.socket.send(Frame.MESSAGE, pack_message(message))

    def ask_meeting(self) -> None:
        """Ask where others can meet it."""
        self.socket.send(Frame.MEETING)

    def dismiss(self) -> None:
        """Let it go: it is needed no more."""
        self.socket.send(Frame.END)
        self.socket.close()


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is there."""

    line: JoinedLine


@dataclass(frozen=True, slots=True)
class Said:
    """A worker has said something."""

    line: JoinedLine
    message: Message


@dataclass(frozen=True, slots=True)
class Met:
    """A worker has said where it can be met."""

    line: JoinedLine
    meeting: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """A worker wants to go."""

    line: JoinedLine
    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker is gone, or what trained there."""

    line: JoinedLine
    reason: str
    is_out_of_memory: bool


News: TypeAlias = Joined | Said | Met | Leaves | Gone


class Entrance:
    """A port at which workers join, and what is heard of all that have.

    Raises:
        StudyError: Nobody can listen there.
    """

    def __init__(self, listen: str, key: bytes, kind: str) -> None:
        host, port = read_address(listen)
        try:
            self._server = socket.create_server((host, port), family=_find_family(host), backlog=128)
        except OSError as error:
            raise StudyError(
                f"workers cannot join at {listen!r}: {error.strerror or error}; name another port"
            ) from error
        self.news: SimpleQueue[News] = SimpleQueue()
        self._key = key
        self._kind = kind
        self._folder = TemporaryFolder()
        self._secret = secrets.token_hex(16)
        (self._folder.path / "home").write_text(self._secret)
        self._names: set[str] = set()
        self._naming = threading.Lock()
        self._is_closed = threading.Event()
        self._is_attended = False
        self._attending = threading.Lock()
        self._knocking = threading.BoundedSemaphore(MOST_KNOCKING)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where workers join."""
        host, port = self._server.getsockname()[:2]
        host = socket.gethostname() if host in EVERYWHERE else host
        return f"{SCHEME}://[{host}]:{port}" if ":" in host else f"{SCHEME}://{host}:{port}"

    def attend(self, is_attended: bool) -> None:
        """Say whether somebody takes the news from now on. While nobody does, who wants to leave is let go at once.

        Who was let go before this is in the news by then, and who wants to leave after it is not let go here.
        """
        with self._attending:
            self._is_attended = is_attended

    def forget(self, line: JoinedLine) -> None:
        """Let another worker have the name."""
        with self._naming:
            self._names.discard(line.device.name)

    def close(self) -> None:
        """Let nobody join any more."""
        self._is_closed.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # or whoever accepts waits on
        self._server.close()
        self._folder.remove()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                if self._is_closed.wait(BREATH_S):  # else too many files are open, or a caller was gone at once
                    return
                continue
            if self._knocking.acquire(blocking=False):
                threading.Thread(target=self._receive, args=(sock,), daemon=True).start()
            else:
                sock.close()

    def _receive(self, sock: socket.socket) -> None:
        """Let a worker in, and listen to it until it is gone."""
        try:
            line = self._introduce(sock)
        except LineLost:
            sock.close()
            return
        finally:
            self._knocking.release()
        if line is not None:
            self.news.put(Joined(line))
            self._listen(line)

    def _introduce(self, sock: socket.socket) -> JoinedLine | None:
        signed = SignedSocket(sock, self._key, greet_worker)
        try:
            home = {"file": str(self._folder.path / "home"), "secret": self._secret}
            signed.send(Frame.HELLO, json.dumps({**describe_versions(), "kind": self._kind, "home": home}).encode())
            about = read_hello(signed)
            refusal = _find_refusal(about, self._kind)
            if refusal is not None:
                signed.send(Frame.HELLO, json.dumps({"refusal": refusal}).encode())
                signed.close()
                return None
            host, kind = str(about["host"]), str(about["kind"])
            device = Device(name=self._name(f"{host}/{kind}"), kind=kind)
        except LineLost:
            signed.drop()
            raise
        signed.send(Frame.HELLO, json.dumps({"name": device.name}).encode())
        return JoinedLine(device, str(about["node"]), bool(about["is_home"]), signed)

    def _name(self, stem: str) -> str:
        with self._naming:
            name = next(name for name in (f"{stem}:{place}" for place in count()) if name not in self._names)
            self._names.add(name)
        return name

    def _listen(self, line: JoinedLine) -> None:
        reason, is_out_of_memory = "the connection to it was lost", False
        try:
            while True:
                kind, content = line.socket.receive()
                if kind is Frame.MESSAGE:
                    self._take(line, content)
                elif kind is Frame.MEETING:
                    self.news.put(Met(line, content.decode()))
                elif kind is Frame.LEAVING:
                    self._let_leave(line, content.decode())
                elif kind is Frame.LOST:
                    lost = json.loads(content)
                    reason, is_out_of_memory = str(lost["reason"]), bool(lost["is_out_of_memory"])
        except LineLost as cause:
            reason = f"{reason}: {cause}" if str(cause) and not is_out_of_memory else reason
        except Exception as error:  # of whatever is pickled there and cannot be made here
            reason = f"what it said cannot be read: {type(error).__name__}: {error}"
        line.socket.drop()
        self.news.put(Gone(line, reason, is_out_of_memory))

    def _let_leave(self, line: JoinedLine, reason: str) -> None:
        with self._attending:
            self.news.put(Leaves(line, reason))
            if not self._is_attended:
                line.dismiss()

    def _take(self, line: JoinedLine, content: bytes) -> None:
        message: Message = pickle.loads(content)  # noqa: S301 # signed with the study's own key
        if isinstance(message, FileRequest | PieceRequest):
            line.send(answer_request(message))  # here, for the disk may be slow and others must not wait
        else:
            self.news.put(Said(line, message))


def read_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address such as `tcp://lab-3:7700`, `lab-3:7700` or `[::1]:7700`.

    Raises:
        StudyError: It is none.
    """
    with suppress(ValueError):
        parts = urlsplit(text if "://" in text else f"{SCHEME}://{text}")
        if parts.scheme == SCHEME and parts.hostname and parts.port is not None and not parts.path.strip("/"):
            return parts.hostname, parts.port
    raise StudyError(f"{text!r} is no address at which workers join a study; give one such as {SCHEME}://lab-3:7700")


def read_hello(signed: SignedSocket) -> Json:
    """Wait for what the other end says of itself.

    Raises:
        LineLost: It says something else, or nothing.
    """
    kind, content = signed.receive(SHORT_BYTES)
    with suppress(ValueError):
        about = json.loads(content)
        if kind is Frame.HELLO and isinstance(about, dict):
            return about
    raise LineLost("the other end does not introduce itself")


def describe_versions() -> Json:
    """Return what both ends must have in common, for they send each other objects of Python."""
    return {"headwater": version("headwater"), "python": ".".join(platform.python_version_tuple()[:2])}


def _find_refusal(about: Mapping[str, Any], kind: str) -> str | None:  # Any: as above
    ours = describe_versions()
    if not {"host", "kind", "node", "is_home", *ours} <= about.keys():
        return "the worker does not say what it is"
    for name, wanted in ours.items():
        if about[name] != wanted:
            return f"the worker has {name} {about[name]}, and the study {wanted}; install the same on both"
    if str(about["kind"]).partition(" ")[0] != kind:
        return f"the worker offers {about['kind']}, and the study trains on {kind}"
    return None


def _find_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_home(home: Mapping[str, str]) -> bool:
    """Tell whether this machine has the files of the study: it has written down a secret in one of them."""
    try:
        return Path(home["file"]).read_text() == home["secret"]
    except OSError:
        return False
