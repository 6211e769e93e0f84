"""Configurations of which only some values are given: by the user, or by a study in another space."""

from __future__ import annotations

from random import Random
from typing import Any

from headwater.errors import SpaceError
from headwater.space.configuration import Config, find_values, nest, show_plain
from headwater.space.domains import Choice, Domain, Grid, show_value
from headwater.space.space import Space


def complete_config(space: Space, given: Config, rng: Random) -> Config:
    """Return a configuration with the values that are given, and all others drawn at random.

    Raises:
        SpaceError: A key is not in the space, or a value not in its domain.
    """
    values = _list_values(space, given)

    def draw(key: str, domain: Domain) -> Any:  # Any: as for Config
        if key not in values:
            return domain.sample(rng)
        if not domain.contains(values[key]):
            raise SpaceError(f"point key {key!r} is {show_value(values[key])}; choose a value in {domain}")
        return values[key]

    config = space.resolve(draw)
    whole = space.flatten(config)
    space.encode(nest({**whole, **values}))  # refuses a value that is not for a point to choose
    return config


def adopt_shown(space: Space, shown: Config) -> Config:
    """Return those values of a configuration, shown as the record has it, that this space may hold too."""
    values = _list_values(space, shown, are_known=False)
    found: dict[str, Any] = {}  # Any: as for Config
    rng = Random(0)

    def draw(key: str, domain: Domain) -> Any:  # Any: as for Config
        options = domain.options if isinstance(domain, Choice | Grid) else values.get(key, ...)
        options = options if isinstance(domain, Choice | Grid) else (options,)
        for option in options:
            if key in values and show_plain(option) == values[key] and domain.contains(option):
                found[key] = option
                return option
        return domain.sample(rng)

    space.resolve(draw)
    return nest(found)


def _list_values(space: Space, given: Config, *, are_known: bool = True) -> dict[str, Any]:  # Any: as for Config
    keys = [row.key for row in space.describe()]
    values = dict(find_values(given, nest(dict.fromkeys(keys))))
    unknown = [key for key in values if key not in keys]
    if unknown and are_known:
        raise SpaceError(f"point key {unknown[0]!r} is not in the space, which has {', '.join(map(repr, keys))}")
    return {key: value for key, value in values.items() if key in keys}
