"""Processes that were lost while they trained: the machine may have ended them, or what they trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.trials import Lane


class Losses:
    """Tells chance from habit: a group that loses its process twice at one place has done that itself."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], list[int]] = {}

    def note(self, lanes: Sequence[Lane], epochs: Mapping[int, int]) -> bool:
        """Take in that a group has lost a process, its trials having reported so far; tell if that may be chance."""
        numbers = tuple(lane.number for lane in lanes)
        place = [epochs.get(number, 0) for number in numbers]
        is_new = self._places.get(numbers) != place
        self._places[numbers] = place
        return is_new
