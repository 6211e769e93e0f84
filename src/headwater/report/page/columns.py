"""Columns of numbers as short text: the bytes of a typed array in base64, which a browser reads without parsing.

A column begins with its type, as in `f4:` for floats of four bytes, the lowest first; whole numbers that count from 0
are `to:` their end.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from headwater.trials import Status

MOST_TEXT = 400
"""A word of a configuration is cut to so many characters; a trial's own page has it whole."""
LACKING = object()
"""What a trial has under a key that it does not have."""
_WHOLE = (("u1", "B", 0, 2**8), ("u2", "H", 0, 2**16), ("i4", "i", -(2**31), 2**31))
_LARGEST_SAFE = 2**53
_LETTERS = {status: status.value[0] for status in Status}


def pack_floats(values: Sequence[float], *, exact: bool) -> str:
    """Pack numbers, NaN and the infinities among them: exactly, or to seven digits in half the space."""
    return f"f8:{_encode(array('d', values))}" if exact else f"f4:{_encode(array('f', values))}"


def pack_whole(values: Sequence[int]) -> str:
    """Pack whole numbers in as few bytes as the largest needs."""
    if values == list(range(len(values))):
        return f"to:{len(values)}"
    low, high = min(values, default=0), max(values, default=0)
    for name, code, least, end in _WHOLE:
        if least <= low and high < end:
            return f"{name}:{_encode(array(code, values))}"
    return pack_floats(values, exact=True)


def pack_statuses(statuses: Sequence[Status]) -> str:
    """Pack statuses as a letter each."""
    return "".join(_LETTERS[status] for status in statuses)


def pack_values(values: Sequence[Any]) -> dict[str, Any]:  # Any: JSON values
    """Pack what trials have under one key: as numbers where all are, else as words and who has which.

    LACKING stands for a key that a trial does not have; a number that no float holds exactly is a word.
    """
    there = [value for value in values if value is not LACKING]
    lacking = [place for place, value in enumerate(values) if value is LACKING]
    kinds = {type(value) for value in there}
    is_whole = kinds == {int}
    if there and kinds <= {int, float} and all(abs(value) <= _LARGEST_SAFE for value in there if type(value) is int):
        numbers = [float("nan") if value is LACKING else float(value) for value in values]
        return {"numbers": pack_floats(numbers, exact=True), "whole": is_whole, "lacking": lacking}
    words: dict[str, Any] = {}  # Any: as above
    places: dict[str, int] = {}
    index = []
    for given in values:
        value = None if given is LACKING else given
        name = repr(value)
        words.setdefault(name, _cut(value, name))
        index.append(places.setdefault(name, len(places)))
    return {"words": list(words.values()), "index": pack_whole(index), "lacking": lacking}


def _cut(value: Any, name: str) -> Any:  # Any: a JSON value
    """Return a value as it is, or where that is long the beginning of it."""
    if len(name) <= MOST_TEXT:
        return value
    return f"{(value if isinstance(value, str) else name)[: MOST_TEXT - 1]}…"


def _encode(numbers: array[Any]) -> str:  # Any: int or float
    if sys.byteorder != "little":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()
