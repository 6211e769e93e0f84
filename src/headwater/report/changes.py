"""Why trials had the devices they had, and what that gained: as the record tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.report.numbers import show_count
from headwater.store import DEVICES, Note

MAX_CHANGES = 10
"""So many are shown below a timeline, the last ones; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was noted of the devices of some trials."""

    trials: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        whose = f"trial {self.trials[0]}" if len(self.trials) == 1 else show_count(len(self.trials), "trial")
        return f"{whose}: {self.text}"


def gather_changes(notes: Sequence[Note]) -> tuple[Change, ...]:
    """Return what notes say of devices, in the order of writing, each once with all of its trials."""
    trials: dict[str, list[int]] = {}
    for note in notes:
        if note.kind == DEVICES and note.number is not None:
            trials.setdefault(note.text, []).append(note.number)
    return tuple(Change(trials=tuple(numbers), text=text) for text, numbers in trials.items())
