"""When to do slow things while a study trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEAST_S = 5.0
"""Such work is done no more often than this,"""
MOST_SHARE = 0.05
"""and takes no larger share of the time, except at the end of a study."""


class Pace:
    """Says when it is time for something slow again: the longer it took, the longer it has to wait."""

    def __init__(self, least_s: float = LEAST_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_s = least_s
        self._clock = clock
        self._next_s = clock() + least_s

    @property
    def is_due(self) -> bool:
        """Whether it is time again."""
        return self._clock() >= self._next_s

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Do the work inside, and wait long enough after it."""
        start_s = self._clock()
        yield
        end_s = self._clock()
        self._next_s = end_s + max(self._least_s, (end_s - start_s) / MOST_SHARE)
