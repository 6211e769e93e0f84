"""Which devices of which node a trial gets: close together, with few moves, so that whole nodes come free."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import TypeAlias

from headwater.errors import PlanError

Seat: TypeAlias = Mapping[str, int]
"""How many devices of which nodes a trial has."""

MOST_TOGETHER = 3
"""So many trials on one node are looked at together to make room for a larger one; beyond, the largest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Where trials are, and which found no room."""

    seats: Mapping[int, Seat]
    waiting: tuple[int, ...] = ()

    def list_moved(self, before: Seating) -> list[int]:
        """Return the trials that have another seat than they had."""
        return [trial for trial, seat in before.seats.items() if self.seats.get(trial, seat) != seat]


EMPTY = Seating(seats=MappingProxyType({}))


@dataclass(slots=True)
class _Room:
    """What is free on each node, and who sits where."""

    sizes: Mapping[str, int]
    free: dict[str, int]
    seats: dict[int, Seat] = field(default_factory=dict)

    def sit(self, trial: int, seat: Seat) -> None:
        self.seats[trial] = seat
        for node, count in seat.items():
            self.free[node] -= count

    def copy(self) -> _Room:
        return _Room(self.sizes, dict(self.free), dict(self.seats))

    def count(self, trial: int) -> int:
        return sum(self.seats[trial].values())

    def rise(self, trial: int) -> None:
        for node, count in self.seats.pop(trial).items():
            self.free[node] += count


def seat_trials(
    wanted: Mapping[int, int], nodes: Mapping[str, int], before: Seating = EMPTY, locked: Collection[int] = ()
) -> Seating:
    """Seat trials that want so many devices each on nodes that have so many.

    A trial that fits on a node lies on one; a larger one takes whole nodes, and the rest of it lies on one. Who has the
    right number of devices stays, unless a larger trial needs the room; those in `locked` stay in any case. A trial
    is only ever moved for a larger one, so this comes to an end.

    Raises:
        PlanError: A number of devices is below one.
    """
    for name, count in (*wanted.items(), *nodes.items()):
        if count < 1:
            raise PlanError(f"{name!r} has or wants {count} devices; each number must be at least 1")
    room = _Room(nodes, dict(nodes))
    for trial, seat in before.seats.items():
        fits = all(room.free.get(node, 0) >= count for node, count in seat.items())
        if fits and sum(seat.values()) == wanted.get(trial) and _lies_close(seat, nodes):
            room.sit(trial, seat)
    queue = sorted((-count, trial) for trial, count in wanted.items() if trial not in room.seats)
    settled, waiting = set(locked), []
    while queue:
        size, trial = queue.pop(0)
        ahead = room.copy()
        moved = _evict(ahead, -size, settled)
        if moved is None:
            waiting.append(trial)
            continue
        for other in moved:
            insort(queue, (-wanted[other], other))
        room = ahead
        room.sit(trial, _find_seat(room, -size) or {})
        settled.add(trial)
    return Seating(seats=room.seats, waiting=tuple(waiting))


def empty_nodes(wanted: Mapping[int, int], nodes: Mapping[str, int], before: Seating, num_kept: int) -> Seating:
    """Seat trials on `num_kept` of the nodes, those from which fewest would have to move, so that the others are free.

    Raises:
        PlanError: So few nodes do not hold the trials.
    """
    used = {node: sum(seat.get(node, 0) for seat in before.seats.values()) for node in nodes}
    kept = sorted(nodes, key=lambda node: (-used[node], node))[:num_kept]
    seating = seat_trials(wanted, {node: nodes[node] for node in kept}, before)
    if seating.waiting:
        raise PlanError(
            f"{sum(wanted.values())} devices are wanted, and the {num_kept} nodes to be kept have "
            f"{sum(nodes[node] for node in kept)}; keep more nodes"
        )
    return seating


def _lies_close(seat: Seat, nodes: Mapping[str, int]) -> bool:
    """Tell whether a seat is in one piece, or in whole nodes and one piece."""
    return sum(count < nodes[node] for node, count in seat.items()) <= 1 and (
        len(seat) == 1 or sum(seat.values()) > max(nodes.values())
    )


def _find_seat(room: _Room, size: int) -> Seat | None:
    """Return the tightest seat that is free: whole nodes, the largest first, then the best fit for the rest."""
    seat: dict[str, int] = {}
    largest = max(room.sizes.values(), default=0)
    for node in sorted(room.sizes, key=lambda one: (-room.sizes[one], one)):
        if size >= largest and room.free[node] == room.sizes[node] <= size:
            seat[node] = room.sizes[node]
            size -= room.sizes[node]
    if not size:
        return seat
    fitting = [node for node, free in room.free.items() if free >= size and node not in seat]
    if not fitting:
        return None
    best = min(fitting, key=lambda node: (room.free[node], node))
    return {**seat, best: size}


def _evict(room: _Room, size: int, settled: Collection[int]) -> list[int] | None:
    """Let those rise who are in the way of a seat of this size, with as few devices as possible; None: in vain."""
    moved: list[int] = []
    while _find_seat(room, size) is None:
        ways = [way for node in room.sizes if (way := _clear_node(room, node, size, settled)) is not None]
        if not ways:
            return None
        for trial in min(ways, key=lambda way: (sum(room.count(trial) for trial in way), len(way), way)):
            room.rise(trial)
            moved.append(trial)
    return moved


def _clear_node(room: _Room, node: str, size: int, settled: Collection[int]) -> tuple[int, ...] | None:
    """Return the smaller trials whose going makes room on a node, the fewest devices; None where that cannot be."""
    needed = min(size, room.sizes[node]) - room.free[node]
    movable = [
        trial
        for trial, seat in room.seats.items()
        if node in seat and trial not in settled and room.count(trial) < size
    ]
    if needed <= 0 or sum(room.seats[trial][node] for trial in movable) < needed:
        return None
    for number in range(1, min(len(movable), MOST_TOGETHER) + 1):
        ways = [way for way in combinations(movable, number) if sum(room.seats[trial][node] for trial in way) >= needed]
        if ways:
            return min(ways, key=lambda way: sum(room.count(trial) for trial in way))
    return tuple(movable)
