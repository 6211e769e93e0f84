"""What is sent to a service: source files, never objects."""

from __future__ import annotations

import inspect
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.errors import StudyError
from headwater.plain_files import read_plain

Files = list[dict[str, str]]
LARGEST_FILE = 2**30
"""Services take less than this; a file that has no end must not fill the memory."""


def pack_files(file: Path, include: Sequence[Path] = ()) -> tuple[str, Files]:
    """Return how the file that defines a study is called there, and it with what it needs beside it.

    Files below the folder of `file` keep their places; folders go with all that is in them.

    Raises:
        StudyError: One cannot be read, or lies elsewhere.
    """
    home = file.absolute().parent
    packed: dict[str, dict[str, str]] = {}
    for path in (file, *(one for given in include for one in _list_files(given))):
        place = path.absolute()
        if not place.is_relative_to(home):
            raise StudyError(
                f"{path} is not below {home}, the folder of {file.name}; copy it there, or move {file.name}"
            )
        name = place.relative_to(home).as_posix()
        packed[name] = {"path": name, **_read(path)}
    return file.name, list(packed.values())


def find_source(train: Any) -> tuple[Path, str | None]:  # Any: a training function
    """Return the file that defines a function and, where a module is loaded from it, the name of that.

    Raises:
        StudyError: There is none, as for what is typed at a prompt.
    """
    function = inspect.unwrap(getattr(train, "func", train))
    try:
        path = Path(inspect.getsourcefile(function) or "")
    except TypeError:
        path = Path()
    if not path.is_file() or path.suffix != ".py":
        name = getattr(function, "__name__", repr(function))
        raise StudyError(
            f"the function {name} is in no file that could be sent to a service; save it with its study as train.py, "
            "and run that"
        )
    return path, getattr(function, "__module__", None)


def find_variable(module: str | None, study: object) -> str | None:
    """Return what a module calls a study; None where it does not know it."""
    names = vars(sys.modules[module]) if module in sys.modules else {}
    return next((name for name, value in names.items() if value is study), None)


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        hidden = ("__pycache__",)
        return sorted(one for one in path.rglob("*") if one.is_file() and not any(part in hidden for part in one.parts))
    return [path]


def _read(path: Path) -> dict[str, str]:
    try:
        content = read_plain(path, LARGEST_FILE)
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}
