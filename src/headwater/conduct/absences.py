"""When devices were away: those that came to a run after its beginning, and those that left before its end."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Absence(NamedTuple):
    """A stretch of time in which a device was not there."""

    device: str
    begin_s: float
    end_s: float


class Absences:
    """Knows since when devices are away that a run has had; conductors that share devices share it."""

    def __init__(self) -> None:
        self._present: frozenset[str] | None = None
        self._begin_s = 0.0
        self._away: dict[str, float] = {}

    def see(self, devices: Collection[str], time_s: float) -> list[Absence]:
        """Take in which devices there are now; return how long those were away that have come."""
        before, self._present = self._present, frozenset(devices)
        if before is None:
            self._begin_s = time_s
            return []
        come = [Absence(name, self._away.pop(name, self._begin_s), time_s) for name in self._present - before]
        self._away |= dict.fromkeys(before - self._present, time_s)
        return come

    def report(self, time_s: float) -> list[Absence]:
        """Return how long devices were away until now that still are, as far as that was not returned before."""
        away = [Absence(name, since_s, time_s) for name, since_s in self._away.items()]
        self._away = dict.fromkeys(self._away, time_s)
        return away
