"""The best schedule of a few trials that get their devices once, for comparison: by trying all that could be it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.plan.allocation import Stage

ROUNDING = 1e-12


def find_optimum(stage: Stage, known: float = math.inf) -> float:
    """Return when the last trial ends at the earliest, if each keeps the devices that it starts with and shares none.

    `known` is an end that can be had, so that nothing later is looked for. The time that this takes grows beyond all
    measure with the number of trials; six are quickly done.
    """
    search = _Search(stage, known)
    search.place(tuple(range(len(stage.seconds))), (0.0,) * stage.num_devices)
    return search.best


class _Search:
    """Starts trials one after the other, each as soon as the devices it is given are free, in every order."""

    def __init__(self, stage: Stage, known: float) -> None:
        self.best = known
        self._seconds = stage.seconds
        counts = range(1, min(stage.speeds.most_devices, stage.num_devices) + 1)
        self._factors = {count: stage.speeds.factor(count) for count in counts}
        self._least_area = min(count * factor for count, factor in self._factors.items())
        self._seen: set[tuple[tuple[int, ...], tuple[float, ...]]] = set()

    def place(self, waiting: tuple[int, ...], free_at: tuple[float, ...]) -> None:
        """Go on from here in every way that may end earlier than the best so far."""
        if not waiting:
            self.best = min(self.best, free_at[-1])
            return
        if self._bound(waiting, free_at) >= self.best * (1 - ROUNDING) or (waiting, free_at) in self._seen:
            return
        self._seen.add((waiting, free_at))
        for trial in waiting:
            rest = tuple(one for one in waiting if one != trial)
            for count, factor in self._factors.items():
                begin = free_at[count - 1]
                end = begin + self._seconds[trial] * factor
                if end < self.best:  # devices that were free before it began can serve nothing else by now
                    later = (max(time, begin) for time in free_at[count:])
                    self.place(rest, tuple(sorted((*later, *(end,) * count))))

    def _bound(self, waiting: Sequence[int], free_at: Sequence[float]) -> float:
        """Return an end that nothing from here on can come before."""
        fastest = min(self._factors.values())
        longest = max(self._seconds[trial] for trial in waiting) * fastest + free_at[0]
        area = sum(self._seconds[trial] for trial in waiting) * self._least_area
        return max(free_at[-1], longest, (sum(free_at) + area) / len(free_at))
