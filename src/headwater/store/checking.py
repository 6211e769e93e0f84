"""Reading what somebody may have changed: every value of a row is what its column promises, or the row is refused.

A database file can come from anywhere. Nothing in it is run, and nothing that is read from it is trusted further than
these functions go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from headwater.errors import StoreError
from headwater.store.encoding import decode_json

MOST_NESTED = 64
"""JSON that is nested more deeply is none of ours."""
LARGEST_WHOLE = 10**300
"""A larger number is no float either, and nothing of ours holds one."""
LATEST_S = 253_402_300_799.0
"""The last second of the year 9999, which is the last that Python can write as a date."""
_SHOWN = 40


def read_whole(what: str, value: object, least: int = 0) -> int:
    """Return a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise StoreError(f"its {what} is {_show(value)}, where a whole number of at least {least} belongs")
    return value


def read_real(what: str, value: object, *, must_be_finite: bool = True) -> float:
    """Return a number that a float can hold."""
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan  # type: ignore[arg-type]  # a number by then
    except OverflowError:
        number, is_number = math.nan, False
    if not is_number or (must_be_finite and not math.isfinite(number)):
        raise StoreError(f"its {what} is {_show(value)}, where a number belongs")
    return number


def read_text(what: str, value: object) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise StoreError(f"its {what} is {_show(value)}, where text belongs")
    return value


def read_time(what: str, value: object) -> float:
    """Return seconds that a date after 1970 can be made of, or a stretch of time that somebody has seen."""
    seconds = read_real(what, value)
    if not 0 <= seconds <= LATEST_S:
        raise StoreError(f"its {what} is {seconds:g} s, which is no time")
    return seconds


def read_json(what: str, value: object) -> Any:  # Any: a JSON value
    """Return what a column of JSON holds."""
    try:
        decoded = decode_json(read_text(what, value))
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"its {what} is no JSON of ours: {_show(value)}") from error
    if not _is_bounded(decoded, MOST_NESTED):
        raise StoreError(f"its {what} is nested more than {MOST_NESTED} times, or has a number of hundreds of digits")
    return decoded


def read_mapping(what: str, value: object) -> dict[str, Any]:  # Any: JSON values
    """Return what a column holds that is a JSON object."""
    decoded = read_json(what, value)
    if not isinstance(decoded, dict):
        raise StoreError(f"its {what} is {_show(decoded)}, where a JSON object belongs")
    return decoded


def read_metrics(value: object) -> dict[str, float]:
    """Return the metrics of a report; they may be NaN or infinite."""
    found: dict[str, Any] = read_mapping("metrics", value)
    if all(type(item) is float for item in found.values()):
        return found
    return {name: read_real(f"metric {_show(name)}", item, must_be_finite=False) for name, item in found.items()}


def _is_bounded(value: object, depth: int) -> bool:
    if type(value) is int:
        return -LARGEST_WHOLE < value < LARGEST_WHOLE
    if type(value) is dict:
        items: Iterable[object] = value.values()
    elif type(value) is list:
        items = value
    else:
        return True
    return depth > 0 and all(type(item) is float or _is_bounded(item, depth - 1) for item in items)


def _show(value: object) -> str:
    """Write a value so that a line can hold it."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
