"""A folder of files: on a disk, or at a URL that fsspec knows. A file is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BufferedWriter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from uuid import uuid4

from headwater.errors import StoreError
from headwater.plain_files import read_plain


class Folder:
    """The files of one folder, by name; it is made with the first of them.

    On a disk, a file is written beside its place, flushed to the disk and renamed. Elsewhere it is handed over in one
    piece, which object stores take as a whole; whoever reads files from other places should check what they hold. The
    disk learns the names of files with `flush`, once for as many as were written.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = as_path(url)

    def write(self, name: str, content: bytes) -> None:
        """Put a file in the place of the earlier one of that name."""
        with self._explaining("written"):
            if self._path is None:
                system, folder = self._system
                system.makedirs(folder, exist_ok=True)
                system.pipe_file(f"{folder}/{name}", content)
            else:
                _write_file(self._path / name, content)

    def flush(self) -> None:
        """Have the disk know the names of all files that were written, so that none is lost with the power."""
        if self._path is not None and os.name == "posix":
            with self._explaining("written"), suppress(FileNotFoundError):
                number = os.open(self._path, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)

    def read(self, name: str) -> bytes:
        """Return what a file holds.

        Raises:
            StoreError: It is not there, or cannot be read.
        """
        with self._explaining("read"):
            if self._path is not None:
                return read_plain(self._path / name, follow_links=False)
            system, folder = self._system
            return bytes(system.cat_file(f"{folder}/{name}"))

    def list_names(self) -> list[str]:
        """Return the names of all files; of a folder that is not there, none."""
        with self._explaining("listed"):
            try:
                if self._path is not None:
                    return sorted(path.name for path in self._path.iterdir())
                system, folder = self._system
                system.invalidate_cache()
                return sorted(str(path).rpartition("/")[2] for path in system.ls(folder, detail=False))
            except FileNotFoundError:
                return []

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._explaining("removed"), suppress(FileNotFoundError):
            if self._path is not None:
                (self._path / name).unlink()
            else:
                system, folder = self._system
                system.rm_file(f"{folder}/{name}")

    def remove_empty(self) -> None:
        """Remove the folder itself, if no file is left in it."""
        with self._explaining("removed"), suppress(FileNotFoundError):
            if self._path is not None:
                with suppress(OSError):  # somebody has put a file there
                    self._path.rmdir()
            else:
                system, folder = self._system
                if not self.list_names():
                    system.rmdir(folder)

    @cached_property
    def _system(self) -> tuple[Any, str]:  # Any: a file system of fsspec, which has no types
        """The file system, and what it calls the folder."""
        from fsspec.core import url_to_fs

        system, folder = url_to_fs(self.url)
        return system, str(folder).rstrip("/")

    @contextmanager
    def _explaining(self, done: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except ImportError as error:
            raise StoreError(f"{self.url} needs a driver: {error}") from error
        except Exception as error:  # every driver of fsspec has kinds of its own
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            cure = "" if done == "read" else "; check that place (space, permissions), then resume the study"
            raise StoreError(f"the states at {self.url} cannot be {done}: {reason}{cure}") from error


def remove_folder(url: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    from fsspec.core import url_to_fs

    system, folder = url_to_fs(url)
    with suppress(FileNotFoundError):
        for path in system.find(folder):  # one by one: in memory, fsspec looks through all files for each of a folder's
            system.rm_file(path)
        system.rm(folder, recursive=True)


def as_path(url: str) -> Path | None:
    """Return the path that a path or a file URL names; None for what lies elsewhere."""
    if "://" not in url:
        return Path(url)
    return Path(unquote(urlparse(url).path)) if url.startswith(("file://", "local://")) else None


def is_on_network(url: str) -> bool:
    """Tell whether every machine finds the same files by this URL."""
    return as_path(url) is None and not url.startswith("memory://")


def _write_file(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        with _open_draft(draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _open_draft(path: Path) -> BufferedWriter:
    """Open a new file; its folder is made if it is not there."""
    try:
        return path.open("xb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
