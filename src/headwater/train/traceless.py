"""A guard for runs that only measure: the user's function leaves nothing behind.

An audit hook hears of every file, process and connection that Python code opens, before it is opened. While a function
is measured, the first write outside of caches ends its run: the hook raises, and nothing is written. Directories are
let through and removed afterwards.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from headwater import torch_private
from headwater.errors import MeasuringEnds
from headwater.fuse.roster import locate
from headwater.torch_private import COMPILER_FOLDERS, exchange_zipfile_writer

_ENDING = frozenset({
    "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.utime",
    "os.system", "os.exec", "os.posix_spawn", "os.startfile", "subprocess.Popen", "shutil.copyfile", "shutil.copytree",
    "shutil.move", "shutil.rmtree", "shutil.make_archive", "shutil.unpack_archive", "shutil.chown",
})  # fmt: skip
"""Events that end a run that is measured, whatever they are about."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_PASSING = (__file__, torch_private.__file__, f"{Path(__file__).parent.parent / 'fuse'}{os.sep}")
"""Code that calls functions on behalf of the user's."""
_OWN = (
    f"{Path(__file__).parent.parent}{os.sep}",
    *(f"{_TORCH}{name}{os.sep}" for name in (*COMPILER_FOLDERS, "multiprocessing")),
    str(Path(_TORCH) / "utils" / "data"),
    f"{os.sep}triton{os.sep}",
    f"{os.sep}multiprocessing{os.sep}",
    f"{os.sep}tempfile.py",
    "<frozen importlib",
)
"""Code whose files and processes are its own affair: ours, compilers, workers that load data, and imports."""
_STDLIB = f"{Path(os.__file__).parent}{os.sep}"


@dataclass(slots=True)
class Trace:
    """Files and directories that a measured run has tried to leave behind."""

    reason: str = ""
    """The write that ended it, with file and line; empty where there was none."""
    process: int = field(default_factory=os.getpid)
    folders: list[Path] = field(default_factory=list)
    """Directories that it made."""
    scratch: set[str] = field(default_factory=lambda: {*map(str, _find_caches()), os.devnull})
    """Directories and files that it may write."""

    def take_reason(self) -> str:
        """Return why the last run ended, and forget it."""
        reason, self.reason = self.reason, ""
        return reason


TRACE: ContextVar[Trace | None] = ContextVar("TRACE", default=None)
"""The trace of the run that this thread measures."""


@dataclass(slots=True)
class Writes:
    """Files that a training function has written in its present call."""

    first: str = ""
    """The first of them, with file and line."""
    process: int = field(default_factory=os.getpid)
    scratch: set[str] = field(default_factory=lambda: {*map(str, _find_caches()), os.devnull})
    """Directories and files that hold nothing of a trial. Found beforehand: an audit hook must open nothing itself."""


WRITES: ContextVar[Writes | None] = ContextVar("WRITES", default=None)
"""The writes of the call that this thread runs."""


@contextmanager
def noting_writes() -> Iterator[None]:
    """Note the first file that the user's function writes in this thread: no checkpoint holds it."""
    _install()
    token = WRITES.set(Writes())
    try:
        yield
    finally:
        WRITES.reset(token)


@contextmanager
def leaving_nothing() -> Iterator[Trace]:
    """Let the user's function leave nothing behind in this thread; it is ended where it would."""
    _install()
    trace = Trace()
    token = TRACE.set(trace)
    try:
        yield trace
    finally:
        TRACE.reset(token)
        for folder in reversed(trace.folders):
            with suppress(OSError):  # it is in use by others, or never came to be
                folder.rmdir()


@cache
def _install() -> None:
    sys.addaudithook(_hear)
    _guard_torch_files()


def _hear(event: str, args: tuple[Any, ...]) -> None:
    """Take in an audit event of this process, in any thread."""
    handle = _EVENTS.get(event)
    if handle is None:
        return
    trace, writes = TRACE.get(), WRITES.get()
    if trace is not None and trace.process == os.getpid():
        handle(trace, event, args)
    elif event == "open" and writes is not None and not writes.first and writes.process == os.getpid():
        path, is_written = _read_open(args)
        if is_written and not _is_own(sys._getframe(1)) and not _is_in(path, writes.scratch):
            writes.first = locate(f"writes {Path(os.fsdecode(path)).name}")


def _read_open(args: tuple[Any, ...]) -> tuple[Any, bool]:
    """Return the path of an `open` event, and whether the file is to be written."""
    path, mode, flags = args
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return path, writes and not isinstance(path, int)


def _end(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    """End the run, unless the code that does so is not the user's."""
    if not _is_own(sys._getframe(1)):
        subject = next((str(arg) for arg in args if isinstance(arg, str | bytes | os.PathLike)), "")
        trace.reason = locate(f"the function writes ({event} {subject})".replace(" )", ")"))
        raise MeasuringEnds(trace.reason)


def _open(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    path, is_written = _read_open(args)
    if is_written and not _is_in(path, trace.scratch):
        _end(trace, "open", (path,))


def _make_folder(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    path = Path(os.fsdecode(args[0])).absolute()
    if not path.exists():
        trace.folders.append(path)


def _make_temporary(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    trace.scratch.add(os.fsdecode(args[0]))


def _connect(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    if isinstance(args[1], tuple):  # not a socket of this machine, by which workers send their data
        _end(trace, event, (str(args[1]),))


def _connect_database(trace: Trace, event: str, args: tuple[Any, ...]) -> None:
    if args[0] not in (":memory:", b":memory:") and not _is_in(args[0], trace.scratch):
        _end(trace, event, args)


_EVENTS: dict[str, Callable[[Trace, str, tuple[Any, ...]], None]] = {
    **dict.fromkeys(_ENDING, _end),
    "open": _open,
    "os.mkdir": _make_folder,
    "tempfile.mkstemp": _make_temporary,
    "tempfile.mkdtemp": _make_temporary,
    "socket.connect": _connect,
    "sqlite3.connect": _connect_database,
}


def _is_own(frame: FrameType | None) -> bool:
    """Tell whether the code that does something, for itself and not for its caller, is not the user's."""
    while frame is not None:
        name = frame.f_code.co_filename
        is_passing = name.startswith(_PASSING)
        if not is_passing and any(part in name for part in _OWN):
            return True
        if not is_passing and not name.startswith(_TORCH) and (not name.startswith(_STDLIB) or "-packages" in name):
            return False
        frame = frame.f_back
    return True


def _is_in(path: Any, folders: set[str]) -> bool:
    place = str(Path(os.fsdecode(path)).absolute())
    return place.startswith("/dev/") or any(place == one or place.startswith(one + os.sep) for one in folders)


def _find_caches() -> list[Path]:
    """Return the directories where libraries keep copies of what they could get again."""
    names = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MPLCONFIGDIR")
    user = os.environ.get("USER", "")
    known = [Path.home() / ".cache", Path(tempfile.gettempdir()) / f"torchinductor_{user}"]
    return [*known, *(Path(os.environ[name]) for name in names if os.environ.get(name))]


def _guard_torch_files() -> None:
    """Raise the event of `open` where torch writes a file itself, for its C++ code raises none."""

    def open_zipfile_writer(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, str | os.PathLike):
            sys.audit("open", os.fspath(name_or_buffer), "wb", 0)
        return plain(name_or_buffer)

    plain = exchange_zipfile_writer(open_zipfile_writer)
