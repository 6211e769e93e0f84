"""Packs: unlike groups that train on one device in turns, and read one input stream.

Each unit of a pack runs its training function on a strand of its own, and the data are where they meet: what one unit
loads is there for the others, and the unit whose reading is furthest behind has the turn. So they go through a pass
side by side, whatever their batch sizes, and every example is loaded once. A unit's numbers are those
it would have alone: order, random numbers and torch's modes are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch import nn

from headwater.errors import CannotPack, TrialError
from headwater.fuse.strategies import read_clock
from headwater.train.frozen import Features
from headwater.train.sources import Source
from headwater.train.strands import Strand
from headwater.train.streams import Seat

K = TypeVar("K")
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Unit(Generic[K, T]):
    """A unit in a pack, and its seat among those who read."""

    key: K
    pack: Pack[K, T]
    progress: int = 0
    """How many examples it has read, counted from where the others were when it was loaded."""
    has_read: bool = False
    strand: Strand[T] = field(init=False)

    @property
    def features(self) -> Features:
        return self.pack.features

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        return self.pack.share(key, build)

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        if not self.strand.is_here:
            raise TrialError(
                "the function reads its data in a thread of its own, which cannot take turns with others; "
                "use packing=None, or read in the thread that trains"
            )
        if self.pack.least_progress < self.progress and not is_loaded():
            self.strand.give_way()
        self.progress += num_examples
        self.has_read = True

    def claim(self, model: nn.Module) -> None:
        self.pack.claim(self, model)


class Pack(Generic[K, T]):
    """Units that train in turns. Load some, run it, and load more or free some whenever one has ended."""

    def __init__(self, after_turn: Callable[[K], None] | None = None) -> None:
        self.num_turns = 0
        """How often the turn was given to another unit."""
        self.features = Features()
        self._after_turn = after_turn
        self._units: list[_Unit[K, T]] = []
        self._sources: dict[Hashable, Source] = {}
        self._claims: dict[int, tuple[object, _Unit[K, T]]] = {}
        """What is trained, by id, and by whom."""

    @property
    def least_progress(self) -> int:
        """How far the unit has read that is furthest behind."""
        return min((unit.progress for unit in self._units), default=0)

    @property
    def seconds_loading(self) -> float:
        """How long loading data has taken so far."""
        return sum(source.seconds for source in self._sources.values())

    @property
    def num_loaded(self) -> int:
        """How many examples were loaded so far."""
        return sum(source.num_loaded for source in self._sources.values())

    def load(self, key: K, work: Callable[[Seat], T]) -> None:
        """Add a unit, which `work` runs from the seat that it is given; it starts when its turn comes."""
        unit: _Unit[K, T] = _Unit(key, self, self.least_progress)
        unit.strand = Strand(lambda: work(unit))
        self._units.append(unit)

    def run(self) -> Iterator[tuple[K, T]]:
        """Train until every unit has ended, and yield each with its answer when it has.

        What a unit raises ends the pack, and is raised here. Whoever breaks off can run it again, or must close it.
        """
        last: _Unit[K, T] | None = None
        try:
            while self._units:
                unit = min(self._units, key=lambda unit: unit.progress)
                self.num_turns += unit is not last
                last = unit
                unit.strand.go_on()
                if self._after_turn is not None:
                    self._after_turn(unit.key)
                if unit.strand.has_ended:
                    yield unit.key, self._let_go(unit)
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise

    @property
    def keys(self) -> list[K]:
        """The units that have not ended."""
        return [unit.key for unit in self._units]

    def finish(self, key: K) -> T:
        """Train one unit alone to its end, while the others wait, and return its answer."""
        unit = next(unit for unit in self._units if unit.key == key)
        while not unit.strand.has_ended:
            unit.strand.go_on()
        return self._let_go(unit)

    def close(self) -> None:
        """End all units that are left where they wait."""
        for unit in list(self._units):
            unit.strand.cut()
            self._leave(unit)

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Return the source that all units with this key read.

        Raises:
            CannotPack: The unit has changed the data set that others read; it is theirs again as they had it.
        """
        if key in self._sources and not self._sources[key].keep_settings():
            raise CannotPack("the function changes its data set, which others read too")
        if key not in self._sources:
            self._sources[key] = build()
            self._sources[key].awaits_readers = lambda: any(not unit.has_read for unit in self._units)
        return self._sources[key]

    def claim(self, unit: _Unit[K, T], model: nn.Module) -> None:
        """Note that a unit trains a model, until it leaves.

        Raises:
            CannotPack: Another unit trains it, or a part of it: it lives outside the function.
        """
        parts: list[object] = [*model.modules(), *model.parameters()]
        if any(self._claims.get(id(part), (part, unit))[1] is not unit for part in parts):
            raise CannotPack(
                f"the function trains a {type(model).__name__} that lives outside it, and others train the same one"
            )
        self._claims |= {id(part): (part, unit) for part in parts}

    def _let_go(self, unit: _Unit[K, T]) -> T:
        self._leave(unit)
        if unit.strand.error is not None:
            raise unit.strand.error
        return unit.strand.answer  # type: ignore[return-value]  # it has ended without an error

    def _leave(self, unit: _Unit[K, T]) -> None:
        self._units.remove(unit)
        self._claims = {key: claim for key, claim in self._claims.items() if claim[1] is not unit}
        for source in self._sources.values():
            source.leave(unit)


def time_switch(num_turns: int = 200) -> float:
    """Return the seconds that it takes to give the turn to another unit, and that unit its random numbers."""
    pack: Pack[int, int] = Pack()

    def take_turns(seat: Seat) -> int:
        for _ in range(num_turns):
            seat.await_turn(1, lambda: False)
        return num_turns

    for key in range(2):
        pack.load(key, take_turns)
    begin = read_clock()
    for _ in pack.run():
        pass
    return (read_clock() - begin) / pack.num_turns
