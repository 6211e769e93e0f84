"""Which of several equal ways to compute a call is fastest here, found by measuring once per kind of call."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from headwater import devices
from headwater.trials import ChosenWay

Way: TypeAlias = Callable[[], Any]
Key: TypeAlias = tuple[Hashable, int]

HOPELESS = 3.0
"""A way whose first run takes so many times the best time is not run again."""

MOST_REPEATS = 8
ENOUGH_S = 0.01
"""A way is timed so often, or for so long, where that takes more runs than the least number."""

NUM_BORROWINGS = 3
"""So often does a new size go by the choice of another before it is measured; an epoch's last batch is not worth it."""

NUM_LAPS = 5
"""So many steps does each way of a race get, in turns, as others may use the machine in between."""

RACE = "race"
"""What the keys of races begin with."""

LANE_BY_LANE = ("looped", "batched")
"""Ways whose rounding does not depend on how many lanes there are."""


def read_clock() -> float:
    """Tell the time; where one thread does all the work, the time that it has had, as others may share the machine."""
    if devices.find_accelerator() is not None:
        devices.synchronize()
    elif torch.get_num_threads() == 1:
        return time.thread_time()
    return time.perf_counter()


def read_process_clock() -> float:
    """Tell the time as `read_clock` does, for work that several threads do in turns."""
    if torch.get_num_threads() == 1 and devices.find_accelerator() is None:
        return time.process_time()
    return time.perf_counter()


class Strategies:
    """Remembers the fastest way per key; the ways of one key must give the same answer.

    One key may come in several sizes: those within a factor of two count as one. The first size is measured, another
    borrows its choice until it has been seen a few times. Keys of `choices` and `seconds` are pairs of a key and the
    binary logarithm of its size. Ways named in `preset` are taken, the first that is on offer, without measuring; under
    `torch.use_deterministic_algorithms(True)` those of `LANE_BY_LANE` are, so that every run rounds alike.
    """

    def __init__(
        self, num_repeats: int = 2, clock: Callable[[], float] = read_clock, preset: Sequence[str] = ()
    ) -> None:
        self.choices: dict[Key, str] = {}
        self.seconds: dict[Key, dict[str, float]] = {}
        self._num_repeats = num_repeats
        self._clock = clock
        self._preset = tuple(preset)
        self._num_borrowings: dict[Key, int] = {}
        self._measured: dict[Hashable, list[int]] = {}
        self._adopted: dict[str, dict[int, str]] = {}
        self._races: WeakKeyDictionary[Any, _Race] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind the races, whose owners stay where they are."""
        return {key: value for key, value in self.__dict__.items() if key != "_races"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _races=WeakKeyDictionary())

    @property
    def have_raced(self) -> bool:
        """Whether some race is over."""
        return any(isinstance(key, tuple) and key[:1] == (RACE,) for key, _ in self.choices)

    def export(self) -> tuple[ChosenWay, ...]:
        """Return what was chosen, also elsewhere, as plain data that another process can adopt."""
        own = {(repr(key), magnitude): way for (key, magnitude), way in self.choices.items()}
        adopted = {(text, size): way for text, by_size in self._adopted.items() for size, way in by_size.items()}
        return tuple(ChosenWay(key=key, magnitude=size, way=way) for (key, size), way in (adopted | own).items())

    def adopt(self, ways: Iterable[ChosenWay]) -> None:
        """Go by what was measured on such a device elsewhere, where nothing was measured here; presets come first."""
        for item in ways:
            self._adopted.setdefault(item.key, {})[item.magnitude] = item.way

    def choose(self, key: Hashable, ways: Mapping[str, Way], size: int = 1) -> str:
        """Return the name of the fastest way, timing each of them where nothing is known yet."""
        sized = (key, size.bit_length())
        choice = self.choices.get(sized) or self._borrow(sized)
        if choice is not None:
            return choice
        preset = (*self._preset, *(LANE_BY_LANE if torch.are_deterministic_algorithms_enabled() else ()))
        choice = next((name for name in preset if name in ways), None)
        if choice is None and self._recall(key, ways):
            return self.choose(key, ways, size)
        self.choices[sized] = choice or self._fastest(sized, ways)
        self._measured.setdefault(key, []).append(sized[1])
        return self.choices[sized]

    def race(self, owner: Any, names: Sequence[str], runner: Hashable = None, kind: Hashable = None) -> str:
        """Return which way to go now, of ways that tell only in the time that a whole step of the owner takes.

        The first runner of an owner leads: from one of its calls to the next is a step. Steps of its first kind count.
        The ways are gone in turns, then the fastest for good. Calls without a runner just go along. Where some
        way of anything is preset, nothing depends on time: the first way is gone then.
        """
        if self._preset or torch.are_deterministic_algorithms_enabled():
            return next((name for name in self._preset if name in names), names[0])
        race = self._races.get(owner)
        if race is None:
            if runner is None:
                return names[0]
            race = self._races[owner] = _Race(names, runner, kind)
        key = ((RACE, *names, race.kind), 1)
        if key not in self.choices and runner is not None and not self._recall(key[0], names):
            race.pass_by(runner, kind, self._clock)
            if race.is_over:
                self.seconds[key] = race.best_laps
                self.choices[key] = min(names, key=lambda name: race.best_laps[name])
        return self.choices.get(key, race.current)

    def _recall(self, key: Hashable, names: Collection[str]) -> bool:
        """Take over what was adopted for a key, at its first use; tell whether there was anything that is on offer."""
        adopted = self._adopted.pop(repr(key), {}) if self._adopted else {}
        offered = {magnitude: way for magnitude, way in adopted.items() if way in names}
        for magnitude, way in offered.items():
            if (key, magnitude) not in self.choices:
                self.choices[key, magnitude] = way
                self._measured.setdefault(key, []).append(magnitude)
        return bool(offered)

    def _borrow(self, sized: Key) -> str | None:
        """Return the choice of the nearest size, unless this one has come often enough to be worth measuring."""
        key, magnitude = sized
        if key not in self._measured:
            return None
        self._num_borrowings[sized] = self._num_borrowings.get(sized, 0) + 1
        if self._num_borrowings[sized] > NUM_BORROWINGS:
            return None
        nearest = min(self._measured[key], key=lambda other: abs(other - magnitude))
        return self.choices[key, nearest]

    def _fastest(self, sized: Key, ways: Mapping[str, Way]) -> str:
        """Time the ways in turns; their first runs may have to warm up, so these only rule out what is hopeless."""
        seconds = {name: self._lap(way) for name, way in ways.items()} if len(ways) > 1 else dict.fromkeys(ways, 0.0)
        limit = HOPELESS * min(seconds.values())
        near = [name for name in ways if seconds[name] <= limit]
        laps: dict[str, list[float]] = {name: [] for name in near}
        while len(near) > 1 and not self._are_enough(laps[near[-1]]):
            for name in near:
                laps[name].append(self._lap(ways[name]))
        self.seconds[sized] = seconds | {name: min(times) for name, times in laps.items() if times}
        return min(near, key=lambda name: self.seconds[sized][name])

    def _are_enough(self, laps: Sequence[float]) -> bool:
        """Tell whether a way was timed long enough: short runs more often."""
        return len(laps) >= self._num_repeats and (len(laps) >= MOST_REPEATS or sum(laps) >= ENOUGH_S)

    def _lap(self, way: Way) -> float:
        start = self._clock()
        way()
        return self._clock() - start


class _Race:
    """Several ways, each gone for some steps of a model."""

    def __init__(self, names: Sequence[str], leader: Hashable, kind: Hashable) -> None:
        self.kind = kind
        self.current = names[0]
        self._laps: dict[str, list[float]] = {name: [] for name in names}
        self._leader = leader
        self._start: float | None = None
        self._others: Counter[Hashable] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether every way has had its laps."""
        return all(len(laps) == NUM_LAPS for laps in self._laps.values())

    @property
    def best_laps(self) -> dict[str, float]:
        """The shortest lap of each way; the first ones have measurements of other things in them."""
        return {name: min(laps) for name, laps in self._laps.items()}

    def pass_by(self, runner: Hashable, kind: Hashable, clock: Callable[[], float]) -> None:
        """Note the time if it is the leader that passes, and change the way if it is time to."""
        if runner != self._leader:
            self._others[runner] += 1
            if self._others[runner] <= 2:
                return
            self._leader, self._start = runner, None  # the leader is gone: a lane has left and its memory has moved
        self._others.clear()
        now = clock()
        if self._start is not None:
            self._laps[self.current].append(now - self._start)
        self.current = min(self._laps, key=lambda name: len(self._laps[name]))
        self._start = now if kind == self.kind else None


def rehearse(call: Callable[..., Any], operands: Sequence[Tensor | None]) -> Way:
    """Return one forward and, where gradients are wanted, backward pass of the call on the operands' values.

    Neither the operands nor their gradients are touched.
    """

    def run() -> None:
        copies = [None if item is None else item.detach().requires_grad_(_learns(item)) for item in operands]
        answer = call(*copies)
        outputs = [item for item in (answer if isinstance(answer, tuple) else (answer,)) if item.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(item) for item in outputs])

    return run


def _learns(tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


class Steady(Strategies):
    """Goes the first way, unmeasured: what a checkpoint computes again has to be computed as it was before."""

    def choose(self, key: Hashable, ways: Mapping[str, Any], size: int = 1) -> str:
        """Return the first way."""
        return next(iter(ways))

    def race(self, owner: Any, names: Sequence[str], runner: Hashable = None, kind: Hashable = None) -> str:
        """Return the first way."""
        return names[0]
