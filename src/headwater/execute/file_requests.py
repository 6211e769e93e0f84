"""Files that lie with the study, as a worker on another node reads and writes them: through its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.errors import StoreError
from headwater.execute.lines import TwoWay
from headwater.store import Folder

PIECE_BYTES = 16 << 20
"""In pieces of so many bytes data files are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """From a worker: a file to write, or, without content, to read."""

    url: str
    """The folder."""
    name: str
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """To a worker: what the file holds now, or why that cannot be told."""

    content: bytes = b""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """From a worker: a piece of a data file to read."""

    path: str
    start: int


class RequestedFolder:
    """A folder on the node of the study."""

    def __init__(self, url: str, line: TwoWay) -> None:
        self._url = url
        self._line = line

    def write(self, name: str, content: bytes) -> None:
        """Put a file in the place of the earlier one of that name."""
        self._ask(FileRequest(url=self._url, name=name, content=content))

    def flush(self) -> None:
        """Do nothing: the study has each file on its disk before it answers."""

    def read(self, name: str) -> bytes:
        """Return what a file holds.

        Raises:
            StoreError: It is not there, or cannot be read.
        """
        return self._ask(FileRequest(url=self._url, name=name))

    def _ask(self, request: FileRequest) -> bytes:
        self._line.send(request)
        answer: FileAnswer = self._line.receive()
        if answer.error is not None:
            raise StoreError(answer.error)
        return answer.content


def fetch_file(path: str, line: TwoWay) -> memoryview:
    """Return what a data file of the study holds; it comes in pieces, so that the study keeps no second one of it.

    Raises:
        StoreError: It is not there, or cannot be read.
    """
    content = bytearray()
    while True:
        line.send(PieceRequest(path, len(content)))
        answer: FileAnswer = line.receive()
        if answer.error is not None:
            raise StoreError(answer.error)
        content += answer.content
        if len(answer.content) < PIECE_BYTES:
            return memoryview(content)


def answer_request(request: FileRequest | PieceRequest) -> FileAnswer:
    """Read or write a file for a worker, on the node of the study."""
    if isinstance(request, PieceRequest):
        return _read_piece(request)
    folder = Folder(request.url)
    try:
        if request.content is None:
            return FileAnswer(content=folder.read(request.name))
        folder.write(request.name, request.content)
        folder.flush()
        return FileAnswer()
    except StoreError as error:
        return FileAnswer(error=str(error))


def _read_piece(request: PieceRequest) -> FileAnswer:
    try:
        with Path(request.path).open("rb") as file:
            file.seek(request.start)
            return FileAnswer(content=file.read(PIECE_BYTES))
    except OSError as error:
        return FileAnswer(error=f"{request.path!r} cannot be read: {error.strerror}")
