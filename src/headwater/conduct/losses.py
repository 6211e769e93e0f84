"""Processes that were lost while they trained: the machine may have ended them, or what they trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

from headwater.trials import Lane

MOST_LOSSES = 3
"""A trial that was lost so often at one place, the last time alone, has failed."""


class Verdict(Enum):
    """What becomes of lanes that were lost."""

    AGAIN = auto()
    """They train again as they were: it may have been chance."""
    BLAME = auto()
    """One of them has done it: the group is cut in halves, and one that was alone has failed."""


class Losses:
    """Tells chance from habit: a group that is lost twice at one place has done that itself."""

    def __init__(self, epoch_of: Callable[[int], int]) -> None:
        self._epoch_of = epoch_of
        self._places: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._num_alone: dict[int, int] = {}
        self._suspects: set[int] = set()

    def judge(self, lanes: Sequence[Lane]) -> Verdict:
        """Take in that lanes were lost together, having reported as far as is known by now."""
        numbers = tuple(lane.number for lane in lanes)
        place = tuple(map(self._epoch_of, numbers))
        is_new_place = self._places.get(numbers) != place
        self._places[numbers] = place
        is_suspect = self._suspects.issuperset(numbers)
        if len(numbers) == 1:
            before = 0 if is_new_place else self._num_alone[numbers[0]]
            self._num_alone[numbers[0]] = max(before + 1, MOST_LOSSES if is_suspect else 0)
            return Verdict.BLAME if self._num_alone[numbers[0]] >= MOST_LOSSES else Verdict.AGAIN
        if is_new_place and not is_suspect:
            return Verdict.AGAIN
        self._suspects.update(numbers)
        return Verdict.BLAME
