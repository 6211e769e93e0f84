"""Guesses of the domain that a user meant by a plain list, tuple, set or range."""

from __future__ import annotations

from headwater.errors import SpaceError
from headwater.space.domains import as_plain, is_number, show_value
from headwater.space.space import Kind, Space

DECADE = 10


def require_search(space: Space) -> None:
    """Refuse a space of constants in which a list, tuple, set or range stands where a domain was probably meant.

    A space of plain numbers and names is legal: it has one configuration.

    Raises:
        SpaceError: There is nothing to search, and the message says which domain was probably meant.
    """
    if has_search(space):
        return
    for key, (value,) in space.options.items():
        domain = guess_domain(value)
        if domain is not None:
            raise SpaceError(
                f"the space has nothing to search: {key!r} is {show_value(value)}, which is a constant; "
                f"write {key!r}: {domain} to search it"
            )


def has_search(space: Space) -> bool:
    """Tell whether anything in the space can vary."""
    return any(row.kind is not Kind.CONSTANT for row in space.describe())


def guess_domain(value: object) -> str | None:
    """Return the call of the domain that was probably meant by a value; None where it looks like a constant."""
    if isinstance(value, tuple) and len(value) == 2:
        low, high = map(as_plain, value)
        if is_number(low) and is_number(high) and low < high:
            return f"hw.{_name_range(low, high)}({low!r}, {high!r})"
    if isinstance(value, list | tuple):
        return f"hw.choice({show_value(list(value))})"
    if isinstance(value, range):
        return f"hw.choice({value!r})"
    if isinstance(value, set | frozenset):
        return f"hw.choice({show_value(sorted(value, key=show_value))})"
    return None


def _name_range(low: float, high: float) -> str:
    spans_decade = low > 0 and high / low >= DECADE
    if isinstance(low, int) and isinstance(high, int):
        return "lograndint" if spans_decade else "randint"
    return "loguniform" if spans_decade else "uniform"
