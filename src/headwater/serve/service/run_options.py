"""What a submission may ask of `headwater run`: a closed table, so that no word of a client goes unread."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import StudyError
from headwater.serve.service.values import Json
from headwater.settings import read_number, read_whole
from headwater.study import LARGEST_SEED

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
MOST = 10**9

Read = Callable[[str, Any], Any]  # Any: a JSON value


def _read_word(name: str, value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise StudyError(f"{name} is {value!r:.60}; it must be one word of letters, digits, dots and dashes")
    return value


def _read_count(name: str, value: object) -> int:
    return read_whole(name, value, 1, MOST)


def _read_count_or_word(name: str, value: object) -> int | str:
    return _read_word(name, value) if isinstance(value, str) else _read_count(name, value)


def _read_seconds(name: str, value: object) -> float:
    return read_number(name, value, 0, MOST)


def _read_seed(name: str, value: object) -> int:
    return read_whole(name, value, 0, LARGEST_SEED)


OPTIONS: Mapping[str, Read] = {
    "trials": _read_count,
    "max_epochs": _read_count,
    "lanes": _read_count_or_word,
    "packing": _read_word,
    "allocation": _read_word,
    "seed": _read_seed,
    "search": _read_word,
    "order": _read_word,
    "surrogate": _read_count_or_word,
    "time_budget": _read_seconds,
    "target": read_number,
    "study": _read_word,
}


def read_options(given: object) -> Json:
    """Return options as they were given, each checked.

    Raises:
        StudyError: One is unknown, or not what it must be.
    """
    if not isinstance(given, Mapping):
        raise StudyError(f"options is {given!r:.60}; it must be an object with some of {', '.join(OPTIONS)}")
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise StudyError(f"options has {unknown[0]!r:.60}; possible are {', '.join(OPTIONS)}")
    return {name: OPTIONS[name](f"options.{name}", value) for name, value in given.items() if value is not None}


def write_arguments(options: Mapping[str, Any]) -> list[str]:  # Any: JSON values
    """Write options as the command has them, each in one word so that a value is never taken for an option."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
