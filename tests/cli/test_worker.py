"""The verb `worker`."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import yaml
from tests.execute.joiners import find_port
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.execute.join_keys import have_key
from headwater.execute.joining import Entrance


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["worker", *arguments])


@pytest.fixture
def key_file(empty_place: Path) -> Path:
    have_key(empty_place / "key")
    return empty_place / "key"


def test_without_an_address_it_says_where_to_find_one() -> None:
    result = call()
    assert result.exit_code == 2
    assert "--join URL" in result.output


def test_a_study_that_is_not_there_is_looked_for_and_given_up(key_file: Path) -> None:
    result = call("--join", f"tcp://127.0.0.1:{find_port()}", "--key-file", str(key_file), "--patience", "0.2s")
    assert result.exit_code == 2
    assert "no study answers at tcp://127.0.0.1:" in result.output
    assert "--patience" in result.output


def test_a_worker_with_another_key_is_refused(key_file: Path) -> None:
    entrance = Entrance("127.0.0.1:0", b"o" * 32, "cpu")
    result = call("--join", entrance.url, "--key-file", str(key_file))
    entrance.close()
    assert result.exit_code == 2
    assert "another key" in result.output
    assert entrance.news.empty()


def test_what_has_not_the_key_cannot_have_a_worker_run_anything(key_file: Path) -> None:
    """An address at which somebody else listens learns nothing, and is sent away."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            sock, _ = server.accept()
            with sock:
                sock.sendall(b"headwater join 1" + b"c" * 32)
                sock.recv(64)
                sock.sendall(b"p" * 32 + b"\x02" + b"\x00" * 100)

        thread = threading.Thread(target=pretend)
        thread.start()
        result = call("--join", f"127.0.0.1:{server.getsockname()[1]}", "--key-file", str(key_file))
        thread.join()
    assert result.exit_code == 2
    assert "does not have the key" in result.output


def test_a_worker_of_another_kind_is_told_why_it_is_refused(key_file: Path) -> None:
    entrance = Entrance("127.0.0.1:0", key_file.read_bytes().strip(), "cpu")
    result = call("--join", entrance.url, "--key-file", str(key_file), "--device", "cuda:3")
    entrance.close()
    assert result.exit_code == 2
    assert "offers cuda" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--join", "nowhere"], "tcp://lab-3:7700"),
        (["--join", "a:1", "--device", "tpu"], "cpu, cuda"),
        (["--join", "a:1", "--lease", "soon"], "1h30m"),
        (["--join", "a:1", "--manifest", "nomad", "--image", "x"], "kubernetes"),
        (["--join", "a:1", "--manifest", "kubernetes"], "--image"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: list[str], reason: str, key_file: Path) -> None:
    result = call(*arguments, "--key-file", str(key_file))
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_the_manifest_is_printed_and_nothing_joins() -> None:
    result = call("--join", "tcp://lab-3:7700", "--manifest", "kubernetes", "--image", "lab/train:1", "--workers", "3")
    assert result.exit_code == 0
    assert yaml.safe_load(result.output)["spec"]["parallelism"] == 3
