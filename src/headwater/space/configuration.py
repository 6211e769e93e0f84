"""Configurations: the values one trial runs with, nested as the space is or flat under dotted keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, NoReturn, TypeAlias

from headwater.space.domains import as_plain, show_value

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
    if not isinstance(shape, dict) or not isinstance(config, Mapping):
        yield parent, config
        return
    for name, value in config.items():
        yield from find_values(value, shape.get(name), f"{parent}.{name}" if parent else str(name))


def freeze(nested: Mapping[str, Any]) -> Config:  # Any: as for Config
    """Return nested dictionaries that cannot be changed."""
    return FrozenConfig({k: freeze(v) if isinstance(v, dict) else v for k, v in nested.items()})


class FrozenConfig(dict[str, Any]):  # Any: as for Config
    """A dictionary to whoever reads it; it cannot be changed, and a copy of it is a plain one."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a trial's configuration cannot be changed; change a copy of it: dict(trial.config)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, ({**self},)


def show_plain(value: Any) -> Any:  # Any: as for Config; the answer is a JSON value
    """Return `value` as JSON can hold it; what JSON lacks becomes text, a class or a function its name."""
    plain = as_plain(value)
    if isinstance(plain, bool | int | float | str | NoneType):
        return plain
    if isinstance(value, Mapping):
        return {str(key): show_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [show_plain(item) for item in value]
    # Where an object lies in memory says nothing to a reader, and would differ from run to run.
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", show_value(value)).split())
