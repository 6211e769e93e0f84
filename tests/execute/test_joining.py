"""The port at which workers join: who gets in, and who does no harm."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.execute.clusters import await_truth

from headwater.errors import LineLost, StudyError
from headwater.execute.file_requests import FileAnswer, PieceRequest
from headwater.execute.joining import (
    MOST_KNOCKING,
    Entrance,
    Gone,
    Joined,
    Leaves,
    Said,
    describe_versions,
    is_home,
    read_address,
    read_hello,
)
from headwater.execute.lines import pack_message
from headwater.execute.serving import Idle
from headwater.execute.signed_frames import Frame, SignedSocket, greet_study

KEY = b"k" * 32


@pytest.fixture
def entrance() -> Iterator[Entrance]:
    entrance = Entrance("127.0.0.1:0", KEY, "cpu")
    yield entrance
    entrance.close()


def knock(entrance: Entrance) -> socket.socket:
    return socket.create_connection(read_address(entrance.url))


def introduce(entrance: Entrance, key: bytes = KEY, **changes: Any) -> tuple[SignedSocket, Any]:  # Any: JSON values
    """Join as a worker does; return its end, and what it is answered."""
    signed = SignedSocket(knock(entrance), key, greet_study)
    home = read_hello(signed)["home"]
    about = {**describe_versions(), "host": "lab", "kind": "cpu", "node": "a", "is_home": is_home(home), **changes}
    signed.send(Frame.HELLO, json.dumps(about).encode())
    return signed, read_hello(signed)


def test_workers_get_names_of_their_own_and_are_heard(entrance: Entrance) -> None:
    first, one = introduce(entrance)
    second, other = introduce(entrance)
    assert (one["name"], other["name"]) == ("lab/cpu:0", "lab/cpu:1")
    joined = entrance.news.get()
    assert isinstance(joined, Joined)
    assert joined.line.is_home
    assert isinstance(entrance.news.get(), Joined)
    first.send(Frame.MESSAGE, pack_message(Idle()))
    assert entrance.news.get() == Said(joined.line, Idle())
    first.send(Frame.LEAVING, b"enough")
    assert entrance.news.get() == Leaves(joined.line, "enough")
    first.drop()
    gone = entrance.news.get()
    assert isinstance(gone, Gone)
    entrance.forget(joined.line)
    third, again = introduce(entrance)
    assert again["name"] == "lab/cpu:0"
    second.drop()
    third.drop()


def test_a_name_is_forgotten_only_with_its_line(entrance: Entrance) -> None:
    signed, _ = introduce(entrance)
    assert isinstance(entrance.news.get(), Joined)
    signed.send(Frame.LOST, json.dumps({"reason": "it was killed", "is_out_of_memory": True}).encode())
    signed.close()
    gone = entrance.news.get()
    assert isinstance(gone, Gone)
    assert (gone.reason, gone.is_out_of_memory) == ("it was killed", True)


def test_files_are_read_for_workers_beside_the_study(entrance: Entrance, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"0123456789")
    signed, _ = introduce(entrance)
    signed.send(Frame.MESSAGE, pack_message(PieceRequest(str(tmp_path / "data"), 4)))
    kind, content = signed.receive()
    assert kind is Frame.MESSAGE
    assert content == pack_message(FileAnswer(content=b"456789"))
    assert isinstance(entrance.news.get(), Joined)
    assert entrance.news.empty()
    signed.drop()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"python": "2.7"}, "python 2.7"),
        ({"headwater": "0.0.1"}, "headwater 0.0.1"),
        ({"kind": "cuda"}, "offers cuda"),
    ],
)
def test_who_does_not_fit_is_told_why(entrance: Entrance, changes: dict[str, Any], reason: str) -> None:
    signed, answer = introduce(entrance, **changes)
    assert reason in answer["refusal"]
    with pytest.raises(LineLost):
        signed.receive()
    assert entrance.news.empty()


def test_another_key_is_refused(entrance: Entrance) -> None:
    with pytest.raises(StudyError, match="another key"):
        introduce(entrance, key=b"o" * 32)
    assert entrance.news.empty()


def test_bytes_without_meaning_do_no_harm(entrance: Entrance) -> None:
    random = Random(0)
    for num_bytes in [0, 1, 16, 63, 64, 65, 1000, 1 << 20]:
        with knock(entrance) as sock:
            try:
                sock.sendall(random.randbytes(num_bytes))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except OSError:  # it was hung up on
                pass
    signed, answer = introduce(entrance)
    assert answer["name"] == "lab/cpu:0"
    signed.drop()


def test_what_cannot_be_unpickled_costs_its_own_line_alone(entrance: Entrance) -> None:
    broken, _ = introduce(entrance)
    sound, _ = introduce(entrance)
    lines = [entrance.news.get() for _ in range(2)]
    assert all(isinstance(one, Joined) for one in lines)
    broken.send(Frame.MESSAGE, b"no pickle")
    gone = entrance.news.get()
    assert isinstance(gone, Gone)
    assert "cannot be read" in gone.reason
    sound.send(Frame.MESSAGE, pack_message(Idle()))
    assert isinstance(entrance.news.get(), Said)
    sound.drop()


def test_those_who_say_nothing_keep_nobody_else_out_for_long(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.execute.signed_frames.GREETING_S", 0.2)
    silent = [knock(entrance) for _ in range(MOST_KNOCKING + 5)]

    def can_join() -> bool:
        try:
            introduce(entrance)[0].drop()
        except (LineLost, StudyError, OSError):
            return False
        return True

    await_truth(can_join)
    for sock in silent:
        sock.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StudyError, match=f"127.0.0.1:{port}"):
            Entrance(f"127.0.0.1:{port}", KEY, "cpu")


def test_nobody_joins_after_the_end_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    entrance = Entrance("127.0.0.1:0", KEY, "cpu")
    url = entrance.url
    entrance.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(read_address(url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["tcp://lab-3:7700", "lab-3:7700", "tcp://lab-3:7700/"])
def test_an_address_can_be_written_with_or_without_its_scheme(text: str) -> None:
    assert read_address(text) == ("lab-3", 7700)


@pytest.mark.parametrize("text", ["lab-3", "http://lab-3:7700", "tcp://lab-3:99999", "tcp://lab-3:7700/study", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match="tcp://lab-3:7700"):
        read_address(text)


def test_a_machine_without_the_files_of_the_study_knows_it(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("secret")
    assert is_home({"file": str(tmp_path / "home"), "secret": "secret"})
    assert not is_home({"file": str(tmp_path / "home"), "secret": "another"})
    assert not is_home({"file": str(tmp_path / "elsewhere"), "secret": "secret"})
