"""Which trial is the best of those that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headwater.trials import TrialRecord


class Podium:
    """Compares trials by the last value of the metric, as a result does."""

    def __init__(self, mode: str, metric: str, known: Sequence[TrialRecord] = (), holder: int | None = None) -> None:
        self._sign = -1 if mode == "max" else 1
        self._last = {record.number: record.value(metric) for record in known}
        self._holder = holder

    def see(self, number: int, value: float) -> None:
        """Take in what a trial reported last."""
        self._last[number] = value

    def climb(self, ended: Mapping[int, float]) -> int | None:
        """Return the best of trials that just ended, if none before was better; it is the holder then."""
        finite = [number for number, value in ended.items() if math.isfinite(value)]
        if not finite:
            return None
        best = min(finite, key=lambda number: (self._sign * ended[number], number))
        self._last[best] = ended[best]
        return best if best == self._holder or self.climb_last(best) else None

    def climb_last(self, number: int) -> bool:
        """Tell whether a trial's last value makes it the holder, if it is not yet."""
        value = self._last.get(number, math.nan)
        held = self._last.get(self._holder, math.nan) if self._holder is not None else math.nan
        is_beaten = math.isfinite(held) and self._sign * held <= self._sign * value
        if number == self._holder or not math.isfinite(value) or is_beaten:
            return False
        self._holder = number
        return True
