"""Constants as JSON: plain values as they are, others as a word and their parts; what is read back runs nothing.

What JSON has no way for may still be an option of the study's space, and is then written as the place it has there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias

from headwater.space.domains import same_value
from headwater.trials.functions import NUMPY, find_function, find_name

Json: TypeAlias = Any  # Any: JSON is whatever was read
Options: TypeAlias = Mapping[str, Sequence[Any]]
"""The values that a space offers, by dotted key."""
NO_OPTIONS: Options = MappingProxyType({})

MOST_BITS = 1024
"""A whole number with more of them is no constant that anybody wrote."""


def write_constant(value: Any, name_other: Callable[[Any], Json]) -> Json:
    """Return a value as JSON; `name_other` is asked about what is not plain."""
    kind = type(value)
    if kind in _PARTS:
        word, parts = _PARTS[kind](value)
        return [word, [write_constant(part, name_other) for part in parts]]
    if kind in _PLAIN and not (kind is int and value.bit_length() > MOST_BITS):
        return _PLAIN[kind](value)
    kind_name, name = find_name(kind) or "", None if value is type else find_name(value)
    if kind_name.startswith(NUMPY) and type(value.item()) in _PLAIN:
        return ["scalar", [kind_name, write_constant(value.item(), name_other)]]
    return name_other(value) if name is None else ["function", name]


def read_constant(code: Json, options: Options) -> Any:
    """Return what `write_constant` wrote.

    Raises:
        ValueError: It wrote no such thing; also LookupError and TypeError.
    """
    match code:
        case None | bool() | int() | float() | str():
            return code
        case ["float", str(text)]:
            return float(text)
        case ["bytes", str(text)]:
            return bytes.fromhex(text)
        case ["function", str(name)]:
            return find_function(name)
        case ["scalar", [str(name), item]] if name.startswith(NUMPY):
            return _read_scalar(find_function(name), read_constant(item, options))
        case ["option", [str(key), int(place)]] if place >= 0:
            return options[key][place]
        case [str(word), list(parts)]:
            return _MAKERS[word]([read_constant(part, options) for part in parts])
    raise ValueError(f"{code!r} is no constant")


def name_option(options: Options) -> Callable[[Any], Json]:
    """Return what names a value by its place among the options of a space, and raises ValueError if it has none."""

    def name_other(value: Any) -> Json:
        for key, offered in options.items():
            for place, option in enumerate(offered):
                if type(option) is type(value) and same_value(option, value):
                    return ["option", [key, place]]
        raise ValueError(f"{value!r} is neither plain nor an option of the space")

    return name_other


def _read_scalar(kind: Any, item: Any) -> Any:
    if not isinstance(kind, type) or type(item) not in (bool, int, float):
        raise TypeError(f"{item!r} is no number of the type {kind!r}")
    return kind(item)


def _sorted_parts(values: Any) -> list[Any]:
    return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


_PLAIN: Mapping[type, Callable[[Any], Json]] = {
    **dict.fromkeys((NoneType, bool, int, str), lambda value: value),
    float: lambda value: value if math.isfinite(value) else ["float", repr(value)],
    bytes: lambda value: ["bytes", value.hex()],
}
_PARTS: Mapping[type, Callable[[Any], tuple[str, Sequence[Any]]]] = {
    list: lambda value: ("list", value),
    tuple: lambda value: ("tuple", value),
    dict: lambda value: ("dict", [*value.items()]),
    set: lambda value: ("set", _sorted_parts(value)),
    frozenset: lambda value: ("frozenset", _sorted_parts(value)),
    complex: lambda value: ("complex", [value.real, value.imag]),
    slice: lambda value: ("slice", [value.start, value.stop, value.step]),
    range: lambda value: ("range", [value.start, value.stop, value.step]),
}
_MAKERS: Mapping[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "frozenset": frozenset,
    "complex": lambda parts: complex(*parts),
    "slice": lambda parts: slice(*parts),
    "range": lambda parts: range(*parts),
}
