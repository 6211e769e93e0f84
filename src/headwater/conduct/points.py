"""Configurations that the user wants tried: which trials have them, and where that is written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.space import Config, Space, show_plain
from headwater.space.partial import complete_config

POINTS = "points"
"""The key of the fact: the trials that have points, what was given of each, and what it was completed to."""


@dataclass(frozen=True, slots=True)
class PlacedPoints:
    """Points with the numbers of their trials, and how the record has them."""

    configs: Mapping[int, Config]
    fact: Sequence[Mapping[str, Any]]  # Any: JSON values
    num_new: int
    """How many of them the record lacks."""

    @property
    def num_wanted(self) -> int:
        """How many trials there must be for each to be tried."""
        return max(self.configs, default=-1) + 1


def place_points(
    points: Iterable[Config],
    space: Space,
    seed: int,
    fact: Any = None,  # Any: a JSON value
    known: Mapping[int, Config] | None = None,
) -> PlacedPoints:
    """Give points to the trials that come next; those that the record has keep theirs.

    What a point leaves open is drawn at random. One that a trial has had already, or has yet to try, is left out: it
    would come to the same.
    """
    rows: list[Mapping[str, Any]] = [row for row in fact if isinstance(row, dict)] if isinstance(fact, list) else []
    configs = {int(row["number"]): space.decode(row["codes"]) for row in rows}
    given = [row["given"] for row in rows]
    tried = [*(known or {}).values(), *configs.values()]
    names = {repr(space.encode(config)) for config in tried}
    number = max([*(known or {}), *configs], default=-1) + 1
    num_recorded = len(rows)
    for point in points:
        shown = show_plain(point)
        config = complete_config(space, point, Random(f"{seed}:{number}:point"))
        name = repr(space.encode(config))
        if shown in given or name in names:
            continue
        rows.append({"number": number, "given": shown, "codes": space.encode(config)})
        configs[number] = config
        given.append(shown)
        names.add(name)
        number += 1
    return PlacedPoints(configs, rows, len(rows) - num_recorded)
