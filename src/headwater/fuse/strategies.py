"""Which of several equal ways to compute a call is fastest here, found by measuring once per kind of call."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

Way: TypeAlias = Callable[[], Any]
Key: TypeAlias = tuple[Hashable, int]

HOPELESS = 3.0
"""A way whose first run takes so many times the best time is not run again."""

NUM_BORROWINGS = 3
"""So often does a new size go by the choice of another before it is measured; an epoch's last batch is not worth it."""

LANE_BY_LANE = ("looped", "batched")
"""Ways whose rounding does not depend on how many lanes there are."""


def read_clock() -> float:
    """Tell the time; where one thread does all the work, the time that it has had, as others may share the machine."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    elif torch.get_num_threads() == 1:
        return time.thread_time()
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

    def choose(self, key: Hashable, ways: Mapping[str, Way], size: int = 1) -> str:
        """Return the name of the fastest way, timing each of them where nothing is known yet."""
        sized = (key, size.bit_length())
        choice = self.choices.get(sized) or self._borrow(sized)
        if choice is not None:
            return choice
        preset = (*self._preset, *(LANE_BY_LANE if torch.are_deterministic_algorithms_enabled() else ()))
        choice = next((name for name in preset if name in ways), None)
        self.choices[sized] = choice or self._fastest(sized, ways)
        self._measured.setdefault(key, []).append(sized[1])
        return self.choices[sized]

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
        seconds: dict[str, float] = {}
        for name, way in ways.items():
            seconds[name] = self._time(way, min(seconds.values(), default=float("inf"))) if len(ways) > 1 else 0.0
        self.seconds[sized] = seconds
        return min(seconds, key=lambda name: seconds[name])

    def _time(self, way: Way, best: float) -> float:
        """Time the way: its first run may have to warm up, so it counts only where it rules the way out."""
        first = self._lap(way)
        if first > HOPELESS * best:
            return first
        return min(self._lap(way) for _ in range(self._num_repeats))

    def _lap(self, way: Way) -> float:
        start = self._clock()
        way()
        return self._clock() - start


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
