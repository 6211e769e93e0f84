"""Configurations: the values one trial runs with, nested as the space is or flat under dotted keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

Config: TypeAlias = Mapping[str, Any]  # Any: a value is whatever the training function takes
"""What one trial runs with: plain nested dictionaries, which nobody changes."""


def nest(values: Mapping[str, Any]) -> dict[str, Any]:  # Any: as for Config
    """Build nested dictionaries from values by dotted key."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *parents, name = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return nested


def find_values(config: object, shape: object, parent: str = "") -> Iterator[tuple[str, Any]]:  # Any: as for Config
    """Yield the values of `config` by dotted key, going down where `shape` does."""
    if not isinstance(shape, Mapping) or not isinstance(config, Mapping):
        yield parent, config
        return
    for name, value in config.items():
        yield from find_values(value, shape.get(name), f"{parent}.{name}" if parent else str(name))


def freeze(nested: Mapping[str, Any]) -> Config:  # Any: as for Config
    """Return a view of nested dictionaries that cannot be changed."""
    return MappingProxyType({k: freeze(v) if isinstance(v, dict) else v for k, v in nested.items()})
