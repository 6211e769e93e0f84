"""A worker without the study's disk reads and writes the study's files through its line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.errors import StoreError
from headwater.execute.file_requests import RequestedFolder, answer_request
from headwater.execute.lines import QueueLine


@contextmanager
def answering(line: QueueLine, num_requests: int) -> Iterator[None]:
    def answer() -> None:
        said = line.exchange([])
        for _ in range(num_requests - 1):
            said = line.exchange([answer_request(request) for request in said])
        line.tell([answer_request(request) for request in said])

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


def test_a_file_that_is_written_can_be_read(tmp_path: Path) -> None:
    line = QueueLine()
    folder = RequestedFolder(str(tmp_path / "states"), line)
    with answering(line, 2):
        folder.write("1.state", b"weights")
        assert folder.read("1.state") == b"weights"
    assert (tmp_path / "states" / "1.state").read_bytes() == b"weights"


def test_why_a_file_cannot_be_read_is_said_where_it_is_wanted(tmp_path: Path) -> None:
    line = QueueLine()
    with answering(line, 1), pytest.raises(StoreError, match="No such file"):
        RequestedFolder(str(tmp_path), line).read("1.state")
