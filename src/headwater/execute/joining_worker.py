"""A worker that joins a study: it keeps the connection, and a process of its own trains.

What trains has a fresh process, so that it can die, and signals go to the keeper alone, who tells the study and lets
the training go on to its next report. What the study and the process say to each other is passed on as it is.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType

from headwater.errors import LineLost, StudyError
from headwater.execute.counting import limit_to
from headwater.execute.data_copies import DataCopies
from headwater.execute.joining import SCHEME, describe_versions, is_home, read_address, read_hello
from headwater.execute.serving import serve_joined
from headwater.execute.signed_frames import Frame, SignedSocket, greet_study
from headwater.execute.worker_process import WorkerProcess

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""What asks a worker to leave: Ctrl-C, and what schedulers send before they take a machine away."""
RETRY_S = 0.5
"""So long is waited before another attempt to reach the study."""
REACH_S = 5.0
"""So long may one attempt take."""
PARTING_S = 10.0
"""So long may what trains take to end when it is needed no more."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Left(Enum):
    """Why a worker has ended."""

    NEEDED_NO_MORE = "the study needs it no more"
    NO_STUDY = "no study answers at the address"
    ASKED = "it was asked to leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a worker offers, to whom and for how long.

    Raises:
        StudyError: It is no device, or the address is none.
    """

    url: str
    key: bytes = field(repr=False)
    device: str = "cpu"
    """`cpu`, `cuda`, or a certain GPU as `cuda:1`."""
    lease_s: float | None = None
    """After how long it leaves by itself; None for when it is needed no more."""
    patience_s: float = 30.0
    """How long it tries to reach a study that is not there, at first or any more."""

    def __post_init__(self) -> None:
        read_address(self.url)
        kind, _, place = self.device.partition(":")
        if kind not in ("cpu", "cuda") or (place and not (kind == "cuda" and place.isdecimal())):
            raise StudyError(f"device is {self.device!r}; it must be cpu, cuda, or a certain GPU such as cuda:1")

    @property
    def environment(self) -> dict[str, str]:
        """What the process that trains is to have in its environment."""
        kind, _, place = self.device.partition(":")
        return limit_to(kind, place) if place else {}


def work_for_study(offer: Offer, tell: Callable[[str], None] = lambda text: None) -> Left:
    """Join the study at an address and train for it until it needs this worker no more, or this one is to leave.

    Raises:
        StudyError: The study refuses this worker, or has another key.
    """
    keeper = _Keeper(offer, tell)
    with _asking_to_leave(keeper):
        return keeper.work()


class _Keeper:
    """Keeps the connection to the study."""

    def __init__(self, offer: Offer, tell: Callable[[str], None]) -> None:
        self._offer = offer
        self._tell = tell
        self._signed: SignedSocket | None = None
        self._process: WorkerProcess | None = None
        self._reason = ""
        """Why it is to leave; empty while it is not."""
        self._has_left = threading.Event()
        self._until_s = time.monotonic() + offer.patience_s
        """Until when it tries to reach the study."""

    def work(self) -> Left:
        """Join, again whenever the connection is lost, until there is nothing more to do."""
        while (sock := self._reach()) is not None:
            try:
                if self._serve(sock):
                    return Left.ASKED if self._reason else Left.NEEDED_NO_MORE
            finally:
                sock.close()
        return Left.ASKED if self._reason else Left.NO_STUDY

    def leave(self, reason: str) -> None:
        """Leave at the next report of what trains."""
        if self._reason:
            return
        self._reason = reason
        self._has_left.set()
        self._tell_study()

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""
        return bool(self._reason)

    def hang_up(self) -> None:
        """Leave now."""
        if self._signed is not None:
            self._signed.drop()

    def _tell_study(self) -> None:
        """Say that it wants to leave, where it does; a signal may come at any point, so that may be said twice."""
        if self._signed is not None and self._reason:
            self._signed.send(Frame.LEAVING, self._reason.encode())

    def _reach(self) -> socket.socket | None:
        """Connect; None if nobody is there for a while, or it is to leave."""
        host, port = read_address(self._offer.url)
        while not self._reason and time.monotonic() < self._until_s:
            try:
                return socket.create_connection((host, port), timeout=REACH_S)
            except OSError:
                self._has_left.wait(RETRY_S)
        return None

    def _serve(self, sock: socket.socket) -> bool:
        """Train for the study; tell whether it needs this worker no more, and has not only hung up."""
        try:
            signed = SignedSocket(sock, self._offer.key, greet_study)
        except LineLost:  # it may be about to end, or too busy
            self._has_left.wait(RETRY_S)
            return False
        except StudyError as error:
            raise StudyError(f"cannot join {self._offer.url}: {error}") from error
        try:
            name, has_files = self._introduce(signed)
            self._tell(f"joined {self._offer.url} as {name}")
            self._signed = signed
            self._tell_study()
            try:
                return self._pass_on(name, signed)
            finally:
                self._until_s = time.monotonic() + self._offer.patience_s
                if not has_files:
                    DataCopies().remove()  # what was fetched, unless others on this machine need it
        except LineLost:
            return bool(self._reason)
        finally:
            self._signed = None
            signed.drop()

    def _introduce(self, signed: SignedSocket) -> tuple[str, bool]:
        """Say what this worker offers; return what the study calls it, and whether it has the study's files."""
        has_files = is_home(read_hello(signed).get("home", {}))
        own = {
            **describe_versions(),
            "host": socket.gethostname().partition(".")[0],
            "node": _find_node(),
            "kind": self._offer.device.partition(":")[0],
            "is_home": has_files,
        }
        signed.send(Frame.HELLO, json.dumps(own).encode())
        answer = read_hello(signed)
        if "refusal" in answer:
            raise StudyError(f"the study at {self._offer.url} refuses this worker: {answer['refusal']}")
        return str(answer["name"]), has_files

    def _pass_on(self, name: str, signed: SignedSocket) -> bool:
        """Pass on what the study and the process that trains say to each other, until one of them is gone."""
        process = WorkerProcess(name, serve_joined, environment=self._offer.environment)
        speaker = threading.Thread(target=_speak, args=(process, signed), daemon=True)
        speaker.start()
        try:
            while True:
                kind, content = signed.receive()
                if kind is Frame.MESSAGE:
                    with suppress(LineLost):  # whoever speaks for the process says that it is gone
                        process.send_content(content)
                elif kind is Frame.MEETING:
                    signed.send(Frame.MEETING, _name_meeting(signed.address).encode())
                elif kind is Frame.END:
                    return True
        finally:
            process.kill()
            speaker.join(PARTING_S)


def _speak(process: WorkerProcess, signed: SignedSocket) -> None:
    """Pass on what a process says, and in the end how it died."""
    try:
        while True:
            signed.send(Frame.MESSAGE, process.receive_content())
    except LineLost:
        lost = {"reason": process.explain_end(), "is_out_of_memory": process.was_killed}
        signed.send(Frame.LOST, json.dumps(lost).encode())
        signed.close()


def _find_node() -> str:
    """Return what tells this machine from others, containers of one machine included."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()} {boot}"


def _name_meeting(address: str) -> str:
    """Return where others can meet this worker: a free port."""
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        host = f"[{address}]" if ":" in address else address
        return f"{SCHEME}://{host}:{server.getsockname()[1]}"


@contextmanager
def _asking_to_leave(keeper: _Keeper) -> Iterator[None]:
    """Have signals and the end of the lease ask the worker to leave; Ctrl-C after that has it leave at once.

    Other signals may come more than once: a scheduler sends them to each process of a job.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and keeper.is_leaving:
            keeper.hang_up()
        keeper.leave(f"{signal.Signals(number).name} asked it to")

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    lease_s = keeper._offer.lease_s
    timer = None if lease_s is None else threading.Timer(lease_s, keeper.leave, ("its lease is over",))
    try:
        if timer is not None:
            timer.daemon = True
            timer.start()
        yield
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
