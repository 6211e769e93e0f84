"""The one clock of a run, and by when the run is to be over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Deadline:
    """By when a run is to be over, by the clock that started with it; all stages of the run share it."""

    seconds: float | None
    """What the user allows the run; None for as long as it takes."""
    clock: Callable[[], float]
    begin_s: float
    """What the clock showed when the run began."""
    end_s: float
    """What it shows when this part of the run is to be over."""

    @classmethod
    def start(cls, seconds: float | None = None, clock: Callable[[], float] = time.perf_counter) -> Deadline:
        """Begin now."""
        now = clock()
        return cls(seconds, clock, now, math.inf if seconds is None else now + seconds)

    @property
    def seconds_taken(self) -> float:
        """How long the run has taken."""
        return self.clock() - self.begin_s

    @property
    def seconds_left(self) -> float:
        """How long this part of the run may still take; less than 0 when its time is over."""
        return self.end_s - self.clock()

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self.seconds_left <= 0

    def keep(self, seconds: float) -> Deadline:
        """Return the deadline of a part that leaves so much time for what comes after it."""
        return replace(self, end_s=self.end_s - seconds)

    def share(self, share: float) -> Deadline:
        """Return the deadline of a part that may take this share of the time left."""
        if math.isinf(self.end_s):
            return self
        now = self.clock()
        return replace(self, end_s=now + share * (self.end_s - now))
