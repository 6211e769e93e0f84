"""What running out of memory has taught: how many lanes of a kind fit into one group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from headwater.plan.grouping import Key
from headwater.trials import Lane


class _Shortage(NamedTuple):
    kind: Key
    numbers: frozenset[int]
    """The trials that took more memory than there was."""

    @property
    def num_lanes(self) -> int:
        """How many lanes are tried next: half of those that were too many."""
        return (len(self.numbers) + 1) // 2


class Shortages:
    """The groups that ran out of memory in a study, by the kind of their trials."""

    def __init__(self) -> None:
        self._known: list[_Shortage] = []

    def note(self, kind: Key, lanes: Sequence[Lane]) -> int:
        """Learn that a group of these lanes was too large; return how large groups of this kind may be from now on."""
        self._known.append(_Shortage(kind, frozenset(lane.number for lane in lanes)))
        return int(self.find_limit(kind))

    def find_limit(self, kind: Key) -> float:
        """Return how many lanes of a kind may share a group.

        What lanes part by only ever grows, so a kind begins with what it was known by before.
        """
        return min((item.num_lanes for item in self._known if kind[: len(item.kind)] == item.kind), default=math.inf)

    def excuse(self, number: int) -> None:
        """Forget groups with a trial that does not fit even alone: they may have run out of memory by its fault."""
        self._known = [item for item in self._known if number not in item.numbers]
