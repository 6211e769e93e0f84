"""Which groups that wait train next, as a pack: decided by how to pack, and by what loading was measured to cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from random import Random

from headwater.plan import (
    NUM_AHEAD,
    Fits,
    Packing,
    pack_by_cost,
    pack_by_key,
    pack_neighbours,
    pack_randomly,
    predict_pack,
    tabulate_distances,
)
from headwater.space import Config, Space
from headwater.trials import Lane, LoadingCost, TrialGroup, UnitCost

NEAR = 5.0
"""Up to which distance configurations are neighbours, unless told otherwise; the paper's example has this one."""
MAX_RANDOM = 8
"""How many trials are put together at random."""
WORTHWHILE = 0.1
"""The share of the time that a pack must save: it takes memory, and its trials come to their ends later."""
HURRIED_UNITS = 8
"""How many where the time is limited, so that some trials come to their end."""
MAX_UNITS = 64
"""How many groups a pack takes: more would save hardly more, and all of them would wait for one another."""


class Packer:
    """Puts trials, or the groups they were sorted into, in packs."""

    def __init__(
        self,
        packing: Packing | None,
        space: Space,
        rng: Random,
        tell: Callable[[str, Sequence[Lane]], None],
        max_units: int = MAX_UNITS,
    ) -> None:
        self._packing = packing
        self._space = space
        self._rng = rng
        self._tell = tell
        self._max_units = max_units
        self._packs: dict[int, int] = {}
        self._num_packs = 0
        self._cost: LoadingCost | None = None
        self._tried: set[int] = set()

    @property
    def may_pack(self) -> bool:
        """Whether groups could train as a pack, as far as is known of what loading costs."""
        cost = self._cost
        is_free = cost is not None and (cost.unit is None or not cost.unit.load_s)
        return self._packing is not None and not (self._packing is Packing.COST and is_free)

    def count_free(self, num_units: int) -> int:
        """Return how many more groups a pack takes in while it trains, where it does."""
        if self._packing is not Packing.COST or self._cost is None or self._cost.unit is None:
            return 0
        num_fitting = self._cost.room_bytes // max(self._cost.unit.memory_bytes or 0, 1)
        return int(max(min(self._max_units - num_units, num_fitting), 0))

    def assign(self, lanes: Sequence[Lane]) -> None:
        """Put trials in packs before they are sorted into groups, where the way of packing goes by configurations."""
        if self._packing in (None, Packing.COST) or len(lanes) < 2:
            return
        for places in self._partition(lanes):
            self._num_packs += 1
            self._packs |= {lanes[place].number: self._num_packs for place in places}

    def close(self, reason: str) -> None:
        """Make no more packs."""
        if self._packing is not None:
            self._packing = None
            self._packs = {}
            self._tell(f"groups train one after the other, not as packs: {reason}", ())

    def key(self, lane: Lane) -> Hashable:
        """Return what lanes must agree on to share a group: their pack."""
        return self._packs.get(lane.number)

    def wants_cost(self, waiting: Sequence[TrialGroup]) -> bool:
        """Tell whether loading must be measured, by the first of these groups, before it can be said who trains next.

        That is done once in a study; where a group cannot be measured, it trains, and the next one is tried.
        """
        is_open = self._packing is Packing.COST and self._cost is None
        is_new = waiting[0].lanes[0].number not in self._tried
        return is_open and is_new and len(self._find_mates(waiting)) > 1

    def rule_out(self, waiting: Sequence[TrialGroup], find_share: Callable[[TrialGroup], float | None]) -> None:
        """Learn, where groups are measured already, that too little of their steps is loading for packs to pay."""
        if self.wants_cost(waiting):
            shares = [find_share(group) for group in self._find_mates(waiting)]
            if all(share is not None and share < WORTHWHILE for share in shares):
                self._cost = LoadingCost(unit=None)

    def take_cost(self, group: TrialGroup, cost: LoadingCost | None) -> None:
        """Learn what loading costs; None where this group could not be measured."""
        self._cost = cost
        self._tried.add(group.lanes[0].number)

    def take(self, waiting: Sequence[TrialGroup]) -> list[TrialGroup]:
        """Return those of the waiting groups that train next, with the first of them."""
        mates = [] if self._packing is None else self._find_mates(waiting)
        if self._packing is None or len(mates) < 2:
            return [waiting[0]]
        if self._packing is not Packing.COST:
            first = waiting[0].lanes[0]
            return [group for group in mates if self.key(group.lanes[0]) == self.key(first)]
        return self._take_by_cost(mates)

    def _find_mates(self, waiting: Sequence[TrialGroup]) -> list[TrialGroup]:
        """Return the groups that read from the same place on as the first: they can share all they read."""
        start = _start(waiting[0].lanes[0])
        return [group for group in waiting if _start(group.lanes[0]) == start]

    def _partition(self, lanes: Sequence[Lane]) -> list[list[int]]:
        configs = [lane.config for lane in lanes]
        if self._packing is Packing.KNN:
            return pack_neighbours(len(lanes), tabulate_distances(self._space, configs), NEAR, self._are_few, self._rng)
        if self._packing is Packing.RANDOM:
            return pack_randomly(len(lanes), MAX_RANDOM, self._are_few, self._rng)
        return pack_by_key([read_batch_size(config) for config in configs], self._are_few)

    def _take_by_cost(self, mates: Sequence[TrialGroup]) -> list[TrialGroup]:
        cost = self._cost
        if cost is None or cost.unit is None:
            return [mates[0]]
        sizes = {size: _resize(cost.unit, size / len(mates[0])) for size in {len(group) for group in mates}}
        units = [sizes[len(group)] for group in mates]
        packs = pack_by_cost(units, cost.switch_s, NUM_AHEAD, self._find_room(units, cost.room_bytes))
        chosen = next(places for places in packs if 0 in places)
        saved = predict_pack([units[place] for place in chosen], cost.switch_s, NUM_AHEAD).improvement
        if saved < WORTHWHILE:
            return [mates[0]]
        self._tell(f"{len(chosen)} groups train as a pack: loading their data once should save {saved:.0%}", ())
        return [mates[place] for place in chosen]

    def _find_room(self, units: Sequence[UnitCost], room_bytes: float) -> Fits:
        """Return whether units fit in memory together."""
        return lambda places: (
            len(places) <= self._max_units and sum(units[place].memory_bytes or 0 for place in places) <= room_bytes
        )

    def _are_few(self, places: Sequence[int]) -> bool:
        return len(places) <= self._max_units


def read_batch_size(config: Config) -> Hashable:
    """Return the batch size of a configuration: its value under that name, at whatever depth."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            found = read_batch_size(value)
            if found is not None:
                return found
        elif key == "batch_size":
            return str(value)
    return None


def _start(lane: Lane) -> tuple[int, int]:
    """Where a trial starts to read."""
    return lane.seed, lane.start_epoch


def _resize(cost: UnitCost, ratio: float) -> UnitCost:
    """Estimate a unit that has this many times the lanes."""
    memory = None if cost.memory_bytes is None else int(cost.memory_bytes * ratio)
    return replace(cost, compute_s=cost.compute_s * ratio, memory_bytes=memory)
