"""Reading what a user sets: a setting is checked where it enters, and refused in one line that says what is possible.

NumPy's numbers are numbers; True and False are none, for whoever writes lanes=True means something else.
"""

from __future__ import annotations

import inspect
import math
import os
from numbers import Integral, Real
from typing import Any

from headwater.errors import StudyError

DEFAULT_STORAGE = "headwater.db"
STORAGE_VARIABLE = "HEADWATER_STORAGE"
"""The environment variable that names the record, for the command and for Python alike."""

LONGEST_NAME = 200
"""How many bytes the name of a study may have: files are called after it, and a file's name has at most 255."""

LONGEST_SHOWN = 200
"""How many characters of a value a message shows."""


def find_storage() -> str:
    """Return the record that is meant where none is named: HEADWATER_STORAGE, or headwater.db in this directory."""
    return os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE


def read_whole(name: str, value: object, least: int = 1, most: int | None = None, *, other: str = "") -> int:
    """Return a whole number; `other` is what else the setting may be, for the message.

    Raises:
        StudyError: It is none, or out of range.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise StudyError(f"{name} is {_show(value)}; it must be {other}a whole number {bounds}")


def read_number(name: str, value: object, least: float | None = None, most: float | None = None) -> float:
    """Return a finite number.

    Raises:
        StudyError: It is none, or out of range.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an int that no float can hold
            number = math.inf
        if math.isfinite(number) and (least is None or number >= least) and (most is None or number <= most):
            return number
    bounds = [f"at least {least:g}"] if least is not None else []
    bounds += [f"at most {most:g}"] if most is not None else []
    raise StudyError(
        f"{name} is {_show(value)}; it must be {' '.join(['a finite number', ' and '.join(bounds)]).strip()}"
    )


def _show(value: object) -> str:
    """Write a value for a message, shortened; one of thousands of digits has no text in Python."""
    try:
        text = repr(value)
    except Exception:  # the user's own __repr__, or too many digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def check_one_of(name: str, value: object, possible: tuple[object, ...]) -> None:
    """Refuse a setting that is none of these."""
    if not any(value is one or (isinstance(value, str) and value == one) for one in possible):
        raise StudyError(f"{name} is {_show(value)}; it must be one of {', '.join(map(repr, possible))}")


def check_text(name: str, value: object, meaning: str) -> None:
    """Refuse a setting that is no text in one line."""
    if not isinstance(value, str) or not value.strip():
        raise StudyError(f"{name} is {value!r}; it must be {meaning}")
    if not value.isprintable():
        raise StudyError(f"{name} is {value!r}; it must be {meaning}, in one line and without control characters")


def check_name(value: object) -> None:
    """Refuse what cannot be the name of a study."""
    check_text("name", value, "what the record is to call the study, or None")
    if (size := len(str(value).encode())) > LONGEST_NAME:
        raise StudyError(f"name {str(value)[:20]!r}... has {size} bytes; it must have at most {LONGEST_NAME}")


def check_function(train: Any) -> None:  # Any: whatever a user gives
    """Refuse a training function that cannot be called with a trial, or would only make something to be run later."""
    if isinstance(train, type) or not callable(train):
        raise StudyError(f"train is {train!r}; it must be a function that takes a trial")
    called = train if inspect.isroutine(train) or hasattr(train, "func") else type(train).__call__
    name = getattr(train, "__name__", repr(train))
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise StudyError(f"train is the async function {name}; it must be an ordinary one, written with def")
    if inspect.isgeneratorfunction(called):
        raise StudyError(
            f"train is the generator {name}; it must be a function that reports by trial.report, not yield"
        )
    try:
        signature = inspect.signature(train)
    except ValueError:  # one written in C may have none
        return
    try:
        signature.bind(object())
    except TypeError:
        raise StudyError(
            f"train is {name}{signature}; it must take one argument, the trial; give it others with functools.partial"
        ) from None


def set_whole(owner: object, name: str, least: int, label: str | None = None) -> None:
    """Replace a field of a dataclass, frozen or not, by the whole number that it holds; None stays."""
    value = getattr(owner, name)
    if value is not None:
        object.__setattr__(owner, name, read_whole(label or name, value, least))
