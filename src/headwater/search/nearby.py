"""Configurations that differ from a good one in a few keys, and there only a little."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from headwater.space import Config, Domain, Space

NUM_DRAWS = 64
"""From so many draws are those near the given value taken."""


def draw_nearby(space: Space, centre: Config, keys: Sequence[str], count: int, seed: int) -> list[Config]:
    """Draw so many configurations that differ from `centre` in these keys alone, each near its value there."""
    rng = Random(seed)
    given = space.flatten(centre)
    draws = {key: [domain.sample(rng) for _ in range(NUM_DRAWS)] for key, domain in space.domains.items()}
    near = {key: sorted(draws[key], key=_distance(given[key]))[: NUM_DRAWS // 4] for key in keys}
    places = rng.sample(range(NUM_DRAWS // 4), count)
    chosen = [{key: values[place] for key, values in near.items()} for place in places]
    return [space.resolve(partial(_take, {**given, **own})) for own in chosen]


def _take(values: Mapping[str, Any], key: str, _: Domain) -> Any:  # Any: as for Config
    return values[key]


def _distance(centre: object) -> Callable[[object], float]:
    """Return how far values lie from this one: as numbers, or else whether they are others."""
    if isinstance(centre, int | float) and not isinstance(centre, bool):
        return lambda value: abs(float(value) - centre)  # type: ignore[arg-type]  # draws of one domain are of one kind
    return lambda value: float(value != centre)
