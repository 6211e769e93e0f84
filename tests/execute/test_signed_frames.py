"""Sockets whose both ends prove that they know a key, and whose frames nobody else can make."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from headwater.errors import LineLost, StudyError
from headwater.execute.signed_frames import Frame, SignedSocket, greet_study, greet_worker

KEY = b"k" * 32
OTHER = b"o" * 32


class Ends:
    """Both ends of a connection, with somebody between them who can do what he likes."""

    def __init__(self, change: Callable[[int, bytes], bytes] = lambda number, piece: piece) -> None:
        self.study_side, near = _connect()
        far, self.worker_side = _connect()
        self._change = change
        for source, sink, is_watched in ((near, far, False), (far, near, True)):
            threading.Thread(target=self._pass_on, args=(source, sink, is_watched), daemon=True).start()

    def greet(self, study_key: bytes = KEY, worker_key: bytes = KEY) -> tuple[object, object]:
        """Return both ends after they have greeted each other, or what either came to."""
        answers: dict[str, object] = {}

        def try_one(name: str, sock: socket.socket, key: bytes) -> None:
            try:
                answers[name] = SignedSocket(sock, key, greet_worker if name == "study" else greet_study)
            except (LineLost, StudyError) as error:
                answers[name] = error
                sock.close()

        other = threading.Thread(target=try_one, args=("worker", self.worker_side, worker_key))
        other.start()
        try_one("study", self.study_side, study_key)
        other.join()
        return answers["study"], answers["worker"]

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_watched: bool) -> None:
        number = 0
        with source:
            with suppress(OSError):
                while piece := source.recv(1 << 16):
                    sink.sendall(self._change(number, piece) if is_watched else piece)
                    number += 1
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)


def _connect() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


@pytest.fixture
def greeted() -> Iterator[tuple[SignedSocket, SignedSocket]]:
    study, worker = Ends().greet()
    assert isinstance(study, SignedSocket)
    assert isinstance(worker, SignedSocket)
    yield study, worker
    study.drop()
    worker.drop()


def test_what_one_end_sends_the_other_receives_in_order(greeted: tuple[SignedSocket, SignedSocket]) -> None:
    study, worker = greeted
    large = bytes(range(256)) * 20_000
    study.send(Frame.MESSAGE, b"first")
    study.send(Frame.MESSAGE, large)
    worker.send(Frame.LEAVING, b"why")
    assert [worker.receive(), worker.receive()] == [(Frame.MESSAGE, b"first"), (Frame.MESSAGE, large)]
    assert study.receive() == (Frame.LEAVING, b"why")


def test_all_that_was_sent_before_the_end_arrives(greeted: tuple[SignedSocket, SignedSocket]) -> None:
    study, worker = greeted
    study.send(Frame.MESSAGE, b"last")
    study.send(Frame.END)
    study.close()
    assert [worker.receive()[0], worker.receive()[0]] == [Frame.MESSAGE, Frame.END]
    with pytest.raises(LineLost):
        worker.receive()


def test_an_end_that_hangs_up_is_noticed(greeted: tuple[SignedSocket, SignedSocket]) -> None:
    study, worker = greeted
    worker.drop()
    with pytest.raises(LineLost):
        study.receive()


def test_beats_keep_a_silent_line_open_and_are_heard_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.execute.signed_frames.BEAT_S", 0.01)
    study, worker = Ends().greet()
    assert isinstance(study, SignedSocket)
    assert isinstance(worker, SignedSocket)
    threading.Timer(0.2, worker.send, (Frame.LEAVING, b"")).start()
    assert study.receive() == (Frame.LEAVING, b"")
    study.drop()
    worker.drop()


def test_an_end_that_says_nothing_at_all_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.execute.signed_frames.SILENCE_S", 0.05)
    study, worker = Ends().greet()
    assert isinstance(study, SignedSocket)
    assert isinstance(worker, SignedSocket)
    with pytest.raises(LineLost, match="silent"):
        study.receive()
    worker.drop()


@pytest.mark.parametrize(("study_key", "worker_key"), [(KEY, OTHER), (OTHER, KEY)])
def test_another_key_is_refused_by_both(study_key: bytes, worker_key: bytes) -> None:
    study, worker = Ends().greet(study_key, worker_key)
    assert isinstance(study, LineLost)
    assert isinstance(worker, StudyError)


def test_what_only_repeats_what_it_hears_proves_nothing() -> None:
    near, far = _connect()

    def repeat() -> None:
        with suppress(OSError):
            greeting = far.recv(1 << 16)
            far.sendall(greeting[-32:] + greeting[-32:])

    threading.Thread(target=repeat, daemon=True).start()
    with pytest.raises(LineLost, match="another key"):
        SignedSocket(near, KEY, greet_worker)
    near.close()
    far.close()


def test_what_is_no_study_is_not_joined() -> None:
    near, far = _connect()
    far.sendall(b"SSH-2.0-OpenSSH_9.2 and so on and so on")
    with pytest.raises(StudyError, match="no study"):
        SignedSocket(near, KEY, greet_study)
    near.close()
    far.close()


def _flip(piece: bytes) -> bytes:
    return piece[:-1] + bytes([piece[-1] ^ 1])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda number, piece: _flip(piece) if number else piece, id="changed"),
        pytest.param(lambda number, piece: piece + piece if number else piece, id="repeated"),
        pytest.param(lambda number, piece: b"" if number == 1 else piece, id="left out"),
        pytest.param(lambda number, piece: b"\x02" + b"\xff" * 60 if number else piece, id="made up"),
    ],
)
def test_who_stands_between_can_add_or_change_nothing(change: Callable[[int, bytes], bytes]) -> None:
    study, worker = Ends(change).greet()
    assert isinstance(study, SignedSocket)
    assert isinstance(worker, SignedSocket)
    received: list[bytes] = []

    def receive_all() -> None:
        while True:
            received.append(study.receive()[1])

    worker.send(Frame.MESSAGE, b"one")
    worker.send(Frame.MESSAGE, b"two")
    worker.close()
    with pytest.raises(LineLost):
        receive_all()
    assert received in ([], [b"one"], [b"one", b"two"])
    study.drop()


def test_a_frame_that_is_longer_than_is_due_is_not_read(greeted: tuple[SignedSocket, SignedSocket]) -> None:
    study, worker = greeted
    worker.send(Frame.HELLO, b"x" * 1000)
    with pytest.raises(LineLost, match="longer"):
        study.receive(999)
