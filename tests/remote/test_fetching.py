"""The copy of a study: what a service sends is written where a record has it, and nowhere else."""

from __future__ import annotations

import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest

from headwater.errors import ServiceError
from headwater.execute import Service
from headwater.remote.fetching import fetch_study


def send(monkeypatch: pytest.MonkeyPatch, *members: tuple[str, bytes, bytes]) -> Service:
    """Return a service that sends this, each member with its type."""

    def fetch(service: Service, study: str, file: IO[bytes], *, with_weights: bool) -> None:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, kind, content in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc/passwd"
                info.size = len(content) if kind == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(content))

    monkeypatch.setattr(Service, "fetch", fetch)
    return Service("http://127.0.0.1:1")


def test_record_and_weights_lie_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = "record.db.states/train-1-ab12/best-3-7.safetensors"
    service = send(monkeypatch, ("record.db", tarfile.REGTYPE, b"r"), (state, tarfile.REGTYPE, b"s"))
    fetch_study(service, "train-1", tmp_path / "mine.db", with_weights=True)
    assert (tmp_path / "mine.db").read_bytes() == b"r"
    assert (tmp_path / "mine.db.states/train-1-ab12/best-3-7.safetensors").read_bytes() == b"s"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../record.db", tarfile.REGTYPE),
        ("/tmp/record.db", tarfile.REGTYPE),
        ("record.db", tarfile.SYMTYPE),
        ("record.db", tarfile.LNKTYPE),
        ("record.db.states/../best-1-1.safetensors", tarfile.REGTYPE),
        ("record.db.states/a/../../best-1-1.safetensors", tarfile.REGTYPE),
        ("record.db.states/.hidden/best-1-1.safetensors", tarfile.REGTYPE),
        ("train.py", tarfile.REGTYPE),
        ("record.db", tarfile.FIFOTYPE),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: bytes) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(ServiceError, match="which belongs to none"):
        fetch_study(send(monkeypatch, (name, kind, b"x")), "train-1", home / "mine.db", with_weights=True)
    assert list(tmp_path.rglob("*")) == [home]


def test_a_file_that_would_fill_the_disk_with_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(service: Service, study: str, file: IO[bytes], *, with_weights: bool) -> None:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            info = tarfile.TarInfo("record.db")
            info.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**24)}
            archive.addfile(info)

    monkeypatch.setattr(Service, "fetch", fetch)
    with pytest.raises(ServiceError, match="which belongs to none"):
        fetch_study(Service("http://127.0.0.1:1"), "train-1", tmp_path / "mine.db", with_weights=True)
    assert list(tmp_path.iterdir()) == []


class BreakingOff(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"400\r\nonly a part")
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


def test_a_copy_that_is_broken_off_is_told_as_such(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BreakingOff) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServiceError, match="has broken off its answer"):
            fetch_study(Service(f"http://127.0.0.1:{server.server_port}"), "a", tmp_path / "a.db", with_weights=False)
        server.shutdown()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "fetch", lambda service, study, file, with_weights: file.write(b"x" * 2000))
    with pytest.raises(ServiceError, match="cannot be read"):
        fetch_study(Service("http://127.0.0.1:1"), "train-1", tmp_path / "mine.db", with_weights=False)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x/path", "http://x?a=b", "x:1", "http://x:port", ""])
def test_what_is_no_place_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ServiceError, match="is not where a service can be"):
        Service(url)


def test_a_service_that_is_not_there_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.execute.service.SHORT_PATIENCE_S", 0.0)
    with pytest.raises(ServiceError, match=r"'http://127\.0\.0\.1:1' does not answer: Connection refused"):
        Service("http://127.0.0.1:1", "hw_secret").list_studies()
