"""Which units form a pack: unlike models that train in turns on one device and share one input stream.

A unit is a group of lanes, or a trial alone, and goes by its place in the caller's list. Every way of packing returns
a partition: each place once, ascending inside its pack, packs in the order of their first places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from random import Random
from typing import Any, TypeAlias

from headwater.space import (
    Choice,
    Config,
    Domain,
    Grid,
    Kind,
    LogRandInt,
    LogUniform,
    QLogUniform,
    QUniform,
    RandInt,
    Space,
    Uniform,
)
from headwater.space.domains import same_value
from headwater.trials import UnitCost

Fits: TypeAlias = Callable[[Sequence[int]], bool]
"""Whether the units at these places may be in one pack; never asked about one alone, which always may."""
Distance: TypeAlias = Callable[[int, int], float]
"""How far the units at two places are from one another."""

NUM_AHEAD = 256
"""How many examples are loaded at once for readers who take turns, if they are small."""
_MOST_STEPS = 10
"""From one end of a range to the other, as many as the paper's list of batch sizes has."""


class Packing(StrEnum):
    """How units are put into packs."""

    COST = "cost"
    """By what was measured of each."""
    KNN = "knn"
    """Configurations that are near one another, as in the paper."""
    RANDOM = "random"
    """At random."""
    BATCH_SIZE = "batch_size"
    """Those of the same batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackCost:
    """What one example of the stream is predicted to cost some units, in a pack and one after the other."""

    seconds_packed: float
    seconds_apart: float
    memory_bytes: int | None = None
    """Of all units together; None where that of one is unknown."""

    @property
    def improvement(self) -> float:
        """The share of the time apart that packing saves (the paper's IMPV, equation 3); below 0 it costs time."""
        return (self.seconds_apart - self.seconds_packed) / self.seconds_apart if self.seconds_apart else 0.0


def tabulate_distances(space: Space, configs: Sequence[Config]) -> Distance:
    """Return the distance of two configurations by their places among `configs`: summed over the keys, as in the paper.

    Numbers of a choice or grid are as far apart as their places among its values, sorted. So are those of a range, but
    its ends are at most 10 apart; without steps they are 10 apart, over the logarithm where the range is drawn so.
    Anything else is 0 or 1, and so is a key that a condition draws from a domain for one of the two only.

    Raises:
        SpaceError: A configuration is not one of the space.
    """
    located = [_locate(space, config) for config in configs]
    return lambda first, second: _add_up(located[first], located[second])


def predict_pack(units: Sequence[UnitCost], switch_s: float, examples_per_turn: int) -> PackCost:
    """Predict a pack's time from that of its units (equations 1 and 2).

    Apart, every unit loads and computes. Packed, the dearest loads for all, each computes, and each takes a turn, which
    costs `switch_s`, every `examples_per_turn` examples. A unit alone takes no turns.
    """
    num_turns = len(units) if len(units) > 1 else 0
    computing_s = sum(unit.compute_s for unit in units)
    loading_s = max((unit.load_s for unit in units), default=0.0)
    memory = [unit.memory_bytes for unit in units if unit.memory_bytes is not None]
    return PackCost(
        seconds_packed=computing_s + loading_s + num_turns * switch_s / examples_per_turn,
        seconds_apart=computing_s + sum(unit.load_s for unit in units),
        memory_bytes=sum(memory) if len(memory) == len(units) else None,
    )


def pack_neighbours(num: int, distance: Distance, threshold: float, fits: Fits, rng: Random) -> list[list[int]]:
    """Pack a random unit with its nearest within the threshold, until memory is full; then the next (the paper's kNN).

    A neighbour that no longer fits is passed over, for a farther one may be smaller.
    """
    waiting = list(range(num))
    packs = []
    while waiting:
        centroid = waiting.pop(rng.randrange(len(waiting)))
        reach = [(distance(centroid, other), other) for other in waiting]
        near = sorted(item for item in reach if item[0] <= threshold)
        packs.append(_fill(centroid, [other for _, other in near], fits))
        waiting = _without(waiting, packs[-1])
    return _in_order(packs)


def pack_randomly(num: int, max_units: int, fits: Fits, rng: Random) -> list[list[int]]:
    """Pack at most `max_units`, drawn at random, as far as they fit."""
    return _in_order(_fill_all(rng.sample(range(num), num), fits, max_units))


def pack_by_key(keys: Sequence[Hashable], fits: Fits) -> list[list[int]]:
    """Pack units whose keys are equal, as many as fit."""
    alike: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        alike.setdefault(key, []).append(place)
    return _in_order(pack for places in alike.values() for pack in _fill_all(places, fits))


def pack_by_cost(units: Sequence[UnitCost], switch_s: float, examples_per_turn: int, fits: Fits) -> list[list[int]]:
    """Pack so that the predicted time of the whole falls; no pack is predicted to take longer than its units apart.

    Where `fits` refuses whatever holds something that it refused, no two of the packs could still be merged at a
    gain; where everything fits, no partition is faster.
    """
    # Whichever dearer loader a unit joins, it saves its own loading and pays for its turns. So those that load for
    # longer than they switch join, the dearest first; a pack is worth it if they make up for the turns of its first.
    turn_s = switch_s / examples_per_turn
    by_loading = sorted(range(len(units)), key=lambda place: -units[place].load_s)
    waiting = [place for place in by_loading if units[place].load_s > turn_s]
    packs: list[list[int]] = []
    refused: list[int] = []
    while waiting:
        pack = _fill(waiting[0], [*waiting[1:], *refused], fits)
        if predict_pack([units[place] for place in pack], switch_s, examples_per_turn).improvement > 0:
            packs.append(pack)
            waiting, refused = _without(waiting, pack), _without(refused, pack)
        else:
            refused.append(waiting.pop(0))
    packed = {place for pack in packs for place in pack}
    return _in_order([*packs, *([place] for place in by_loading if place not in packed)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coordinate:
    """Where a configuration lies along one key."""

    value: object
    domain: Domain | None
    """What the value was drawn from; None if a condition gave it."""
    position: float | None
    """Among the numbers of the domain; None where it holds something else."""


def _locate(space: Space, config: Config) -> dict[str, _Coordinate]:
    """Return the coordinates by dotted key, without the constants."""
    values = space.flatten(config)
    domains: dict[str, Domain] = {}

    def note(key: str, domain: Domain) -> Any:  # Any: as for Draw
        domains[key] = domain
        return values[key]

    space.resolve(note)
    varying = [row.key for row in space.describe() if row.kind is not Kind.CONSTANT]
    return {key: _find_coordinate(domains.get(key), values[key]) for key in varying}


def _find_coordinate(domain: Domain | None, value: Any) -> _Coordinate:  # Any: as for Config
    position = None if domain is None else _find_position(domain, value)
    return _Coordinate(value=value, domain=domain, position=position)


def _find_position(domain: Domain, value: Any) -> float | None:  # Any: as for Config
    num_values = domain.num_values()
    if isinstance(domain, Choice | Grid):
        is_numeric = all(isinstance(option, Real) and not isinstance(option, bool) for option in domain.options)
        return float(sum(option < value for option in domain.options)) if is_numeric else None
    if isinstance(domain, LogUniform | LogRandInt):
        low, high = math.log(domain.low), math.log(domain.high)
        return _MOST_STEPS * (math.log(value) - low) / (high - low)
    if isinstance(domain, Uniform | QUniform | QLogUniform | RandInt):
        first, last = domain.nearest(domain.low), domain.nearest(domain.high)
        num_steps = _MOST_STEPS if num_values is None else min(_MOST_STEPS, num_values - 1)
        return float(num_steps * (value - first) / (last - first)) if num_steps else 0.0
    return None


def _add_up(first: dict[str, _Coordinate], second: dict[str, _Coordinate]) -> float:
    return sum(_subtract(coordinate, second[key]) for key, coordinate in first.items())


def _subtract(first: _Coordinate, second: _Coordinate) -> float:
    # Conditions may draw from another domain for each configuration; positions in unlike domains cannot be compared.
    if first.position is not None and second.position is not None and first.domain == second.domain:
        return abs(first.position - second.position)
    return 0.0 if same_value(first.value, second.value) else 1.0


def _fill(first: int, others: Iterable[int], fits: Fits, max_units: float = math.inf) -> list[int]:
    """Return a pack of `first` and, in order, those of `others` that still fit."""
    pack = [first]
    for other in others:
        if len(pack) >= max_units:
            break
        if fits([*pack, other]):
            pack.append(other)
    return pack


def _fill_all(places: Sequence[int], fits: Fits, max_units: float = math.inf) -> list[list[int]]:
    waiting = list(places)
    packs = []
    while waiting:
        packs.append(_fill(waiting[0], waiting[1:], fits, max_units))
        waiting = _without(waiting, packs[-1])
    return packs


def _without(places: Sequence[int], pack: Sequence[int]) -> list[int]:
    taken = set(pack)
    return [place for place in places if place not in taken]


def _in_order(packs: Iterable[Sequence[int]]) -> list[list[int]]:
    return sorted(sorted(pack) for pack in packs)
