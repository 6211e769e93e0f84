"""Which part of a value is to blame when it cannot be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from types import MethodType
from typing import TypeAlias

Parts: TypeAlias = Iterator[tuple[str, object]]


def describe_unsendable(
    value: object, find_parts: Callable[[object], Parts], try_sending: Callable[[object], Exception | None]
) -> str:
    """Say what in a value cannot be sent, why, and what to do.

    `find_parts` yields what a function or a class takes along, each with words for it; `try_sending` returns why a
    part cannot be sent, None if it can.
    """
    trail, seen, culprit, reason = list[str](), set[int](), value, try_sending(value)
    while id(culprit) not in seen:
        seen.add(id(culprit))
        for words, part in [*find_parts(culprit), *_parts_of(culprit)]:
            error = None if id(part) in seen else try_sending(part)
            if error is not None:
                trail.append(words)
                culprit, reason = part, error
                break
    where = f"{', '.join(trail)}, is" if trail else "it is"
    return (
        f"{_name_value(value)} cannot be sent to another process: {where} of type "
        f"{type(culprit).__qualname__} ({reason}); make it inside the function that uses it, or use executor='inline'"
    )


def _name_value(value: object) -> str:
    return type(value).__name__ if is_dataclass(value) else getattr(value, "__qualname__", repr(value))


def _parts_of(value: object) -> Parts:
    if isinstance(value, MethodType):
        yield from (("its object", value.__self__), ("its function", value.__func__))
    elif isinstance(value, partial):
        yield "its function", value.func
        yield from ((f"argument {number}", part) for number, part in enumerate(value.args, 1))
        yield from ((f"argument {name!r}", part) for name, part in value.keywords.items())
    elif isinstance(value, staticmethod | classmethod):
        yield "its function", value.__func__
    elif isinstance(value, dict):
        yield from ((f"item {key!r}", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"item {number}", part) for number, part in enumerate(value))
    elif not isinstance(value, type):
        names = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, "__dict__", {})
        yield from ((f"attribute {name!r}", getattr(value, name)) for name in names)
        yield from (("its class", part) for part in [type(value)])
