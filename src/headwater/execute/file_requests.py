"""Files that lie with the study, as a worker on another node reads and writes them: through its line."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import StoreError
from headwater.execute.lines import TwoWay
from headwater.store import Folder


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


def answer_request(request: FileRequest) -> FileAnswer:
    """Read or write a file for a worker, on the node of the study."""
    folder = Folder(request.url)
    try:
        if request.content is None:
            return FileAnswer(content=folder.read(request.name))
        folder.write(request.name, request.content)
        folder.flush()
        return FileAnswer()
    except StoreError as error:
        return FileAnswer(error=str(error))
