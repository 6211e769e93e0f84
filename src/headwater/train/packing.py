"""Packs: unlike groups that train on one device in turns, and read one input stream.

Each unit of a pack runs its training function on a thread of its own, and the data are where they meet: what one unit
loads is there for the others, and the unit whose reading is furthest behind has the turn. So they go through a pass
side by side, whatever their batch sizes, and every example is loaded once. A unit's numbers are those
it would have alone: order, random numbers and torch's modes are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import cached_property
from threading import Semaphore, Thread, current_thread
from typing import Any, Generic, TypeAlias, TypeVar

from torch import nn

from headwater.errors import CannotPack, TrialError, UnitLeaves
from headwater.fuse.strategies import read_clock
from headwater.train.frozen import Features
from headwater.train.seeding import Randomness
from headwater.train.shared_objects import SharedObjects
from headwater.train.sources import Source

K = TypeVar("K")
T = TypeVar("T")
Work: TypeAlias = "Callable[[PackUnit[K, T]], T]"


class PackUnit(Generic[K, T]):
    """Work in a pack, on a thread of its own, that goes on only while it has the turn.

    Torch keeps its modes, gradient switch and vmap levels by thread, so that no unit sees those of another. To its
    trial it is the access to the data.
    """

    def __init__(self, key: K, pack: Pack[K, T], work: Work[K, T], function: Callable[..., Any] | None) -> None:
        self.key = key
        self.objects = SharedObjects(function)
        """Objects outside the function that other units see too."""
        self.progress = pack.least_progress
        """How many examples it has read, counted from where the others were when it was loaded."""
        self.has_read = False
        self.has_ended = False
        """Whether the work is done, in whatever way."""
        self.answer: T | None = None
        """What it returned."""
        self.error: BaseException | None = None
        """What it raised."""
        self._pack = pack
        self._work = work
        self._turn = Semaphore(0)
        self._return = Semaphore(0)
        self._is_cut = False
        self._randomness: Randomness | None = None
        self._thread = Thread(target=copy_context().run, args=(self._run,), daemon=True)

    @property
    def features(self) -> Features:
        """What frozen models have answered for all units."""
        return self._pack.features

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Return the source that all units with this key read."""
        return self._pack.share(key, build)

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        """Let units go first whose reading is behind, before this many examples are read on."""
        if self._thread is not current_thread():
            raise TrialError(
                "the function reads its data in a thread of its own, which cannot take turns with others; "
                "use packing=None, or read in the thread that trains"
            )
        self.require_unchanged()
        if self._pack.least_progress < self.progress and not is_loaded():
            self._give_way()
        self.progress += num_examples
        self.has_read = True

    def claim(self, model: nn.Module) -> None:
        """Say that this unit trains the model."""
        self._pack.claim(self, model)

    def require_unchanged(self) -> None:
        """Raise CannotPack where the unit has changed objects that others see; they are again as they were."""
        changed = self.objects.restore()
        if changed:
            raise CannotPack(f"the function changes `{changed}`, which lives outside it, and others use the same one")

    def go_on(self) -> None:
        """Give it the turn, and wait until it gives it back or ends."""
        self.objects.note()
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()
        self._return.acquire()
        if self.has_ended:
            self._thread.join()

    def cut(self) -> None:
        """End the work where it waits; code that catches everything may need to be told more than once."""
        self._is_cut = True
        while self._thread.ident is not None and not self.has_ended:
            self.go_on()

    def _give_way(self) -> None:
        """Give the turn back and wait for the next, as the work itself, with its own random numbers."""
        if self._randomness is None:
            self._randomness = Randomness()
        else:
            self._randomness.save()
        self._return.release()
        self._turn.acquire()
        if self._is_cut:
            raise UnitLeaves
        self._randomness.restore()

    def _run(self) -> None:
        try:
            self.answer = self._work(self)
        except BaseException as error:
            self.error = error
        finally:
            self.has_ended = True
            self._return.release()


class Pack(Generic[K, T]):
    """Units that train in turns. Load some, run it, and load more or free some whenever one has ended."""

    def __init__(self, turn: Callable[[K], AbstractContextManager[object]] = nullcontext) -> None:
        """Enter what `turn` returns for a unit while that has the turn."""
        self.num_turns = 0
        """How often the turn was given to another unit."""
        self._turn = turn
        self._units: list[PackUnit[K, T]] = []
        self._sources: dict[Hashable, Source] = {}
        self._claims: dict[int, tuple[object, PackUnit[K, T]]] = {}
        """What is trained, by id, and by whom."""

    @cached_property
    def features(self) -> Features:
        """What frozen models have answered for all units."""
        return Features()

    @property
    def least_progress(self) -> int:
        """How far the unit has read that is furthest behind."""
        return min((unit.progress for unit in self._units), default=0)

    @property
    def num_loaded(self) -> int:
        """How many examples were loaded so far."""
        return sum(source.num_loaded for source in self._sources.values())

    def load(self, key: K, work: Work[K, T], function: Callable[..., Any] | None = None) -> None:
        """Add a unit, which `work` runs with the access that it is given; it starts when its turn comes.

        `function` is the user's, whose changes to objects outside it no other unit may see.
        """
        self._units.append(PackUnit(key, self, work, function))

    def run(self) -> Iterator[tuple[K, T]]:
        """Train until every unit has ended, and yield each with its answer when it has.

        What a unit raises ends the pack, and is raised here. Whoever breaks off can run it again, or must close it.
        """
        last: PackUnit[K, T] | None = None
        try:
            while self._units:
                unit = min(self._units, key=lambda unit: unit.progress)
                self.num_turns += unit is not last
                last = unit
                with self._turn(unit.key):
                    unit.go_on()
                if unit.has_ended:
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
        while not unit.has_ended:
            unit.go_on()
        return self._let_go(unit)

    def close(self) -> None:
        """End all units that are left where they wait."""
        for unit in list(self._units):
            unit.cut()
            self._leave(unit)

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Return the source that all units with this key read."""
        if key not in self._sources:
            self._sources[key] = build()
            self._sources[key].awaits_readers = lambda: any(not unit.has_read for unit in self._units)
            self._sources[key].after_loading = self._note_objects
        return self._sources[key]

    def _note_objects(self) -> None:
        """Take note of changes that a data set has made while it loaded: it may count, or remember."""
        for unit in self._units:
            unit.objects.note()

    def claim(self, unit: PackUnit[K, T], model: nn.Module) -> None:
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

    def _let_go(self, unit: PackUnit[K, T]) -> T:
        self._leave(unit)
        if unit.error is not None:
            raise unit.error
        return unit.answer  # type: ignore[return-value]  # it has ended without an error

    def _leave(self, unit: PackUnit[K, T]) -> None:
        self._units.remove(unit)
        self._claims = {key: claim for key, claim in self._claims.items() if claim[1] is not unit}
        for source in self._sources.values():
            source.leave(unit)


def time_switch(num_turns: int = 200) -> float:
    """Return the seconds that it takes to give the turn to another unit, and that unit its random numbers."""
    pack: Pack[int, int] = Pack()

    def take_turns(access: PackUnit[int, int]) -> int:
        for _ in range(num_turns):
            access.await_turn(1, lambda: False)
        return num_turns

    for key in range(2):
        pack.load(key, take_turns)
    begin = read_clock()
    for _ in pack.run():
        pass
    return (read_clock() - begin) / pack.num_turns
