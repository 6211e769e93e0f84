"""Numbers as people write them into files: read, or refused by the name of what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import PlanError

LARGEST_COUNT = 10**9
LARGEST = 1e30
"""Beyond any count, price or time that somebody means; squares and products of such numbers are still finite."""


def read_number(name: str, given: Any) -> float:  # Any: what a YAML file or a table holds
    """Return a number.

    Raises:
        PlanError: It is none.
    """
    if not isinstance(given, bool):  # which Python takes for a number
        try:
            number = float(given)
        except (TypeError, ValueError, OverflowError):
            number = LARGEST * 2
        if abs(number) <= LARGEST:
            return number
    raise PlanError(f"{name} is {given!r:.60}; it must be a number of at most {LARGEST:g}")


def read_count(name: str, given: Any) -> int:  # Any: as above
    """Return a whole number.

    Raises:
        PlanError: It is none.
    """
    if not isinstance(given, bool | float):
        try:
            number = int(given)
        except (TypeError, ValueError):
            number = LARGEST_COUNT + 1
        if abs(number) <= LARGEST_COUNT:
            return number
    raise PlanError(f"{name} is {given!r:.60}; it must be a whole number of at most {LARGEST_COUNT:,}")


def read_mapping(name: str, given: Any) -> Mapping[Any, Any]:  # Any: as above
    """Return names with values.

    Raises:
        PlanError: It is something else.
    """
    if not isinstance(given, Mapping):
        raise PlanError(f"{name} is {given!r:.60}; it must be names with values, such as {{a: 1, b: 2}}")
    return given


def read_numbers(name: str, given: Any) -> dict[int, float]:  # Any: as above
    """Return numbers by a count, such as seconds by the number of devices.

    Raises:
        PlanError: It is something else.
    """
    pairs = read_mapping(name, given).items()
    return {read_count(f"a count of {name}", count): read_number(f"{name} of {count}", value) for count, value in pairs}
