"""How many threads a model that trains alone gets, by what its steps take.

All the cores are not always free: where something else computes, threads that wait for each other at every operation
can take far longer than one thread alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator

import torch

NUM_STEPS = 3
"""So many steps tell how fast a number of threads is."""
SLOW = 2.0
"""Steps that take so many times longer than before are looked into."""
PATIENCE_S = 5.0
"""After so long are more threads tried again where they were slower; then after twice that, and so on."""


class ThreadChooser:
    """Lets torch compute with one thread or with as many as it may have, whichever is faster now."""

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.perf_counter,
        use: Callable[[int], None] = torch.set_num_threads,
    ) -> None:
        self._most = most
        self._clock = clock
        self._use = use
        self._last: float | None = None
        self._choice = self._choose()

    def step(self) -> None:
        """Learn that a step was taken."""
        if self._most == 1:
            return
        now = self._clock()
        if self._last is None:
            next(self._choice)
        else:
            self._choice.send(now - self._last)
        self._last = now

    def _choose(self) -> Generator[None, float, None]:
        """Take the seconds of each step, and decide."""
        wait_s = PATIENCE_S
        while True:
            one_s = yield from self._probe(1)
            most_s = yield from self._probe(self._most, SLOW * NUM_STEPS * one_s)
            if most_s < one_s:
                yield from self._go_on_until_slow(most_s)
                wait_s = PATIENCE_S
            else:
                self._use(1)
                yield from self._go_on_for(wait_s)
                wait_s *= 2

    def _probe(self, num_threads: int, most_s: float = math.inf) -> Generator[None, float, float]:
        """Return the least time of a few steps after the first, or of fewer if they take too long."""
        self._use(num_threads)
        yield
        laps: list[float] = []
        while len(laps) < NUM_STEPS and sum(laps) < most_s:
            laps.append((yield))
        return min(laps)

    def _go_on_until_slow(self, usual_s: float) -> Generator[None, float, None]:
        num_slow = 0
        while num_slow < NUM_STEPS:
            num_slow = num_slow + 1 if (yield) > SLOW * usual_s else 0

    def _go_on_for(self, seconds: float) -> Generator[None, float, None]:
        while seconds > 0:
            seconds -= yield
