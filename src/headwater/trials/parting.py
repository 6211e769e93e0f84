"""Why lanes that started together cannot stay together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.trials.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Question:
    """What the code asked of the lanes that they could not answer as one."""

    recipe: Recipe | None
    """What sorts them, or None where only their tensors can tell."""
    reason: str
    answers: tuple[Any, ...] = ()
    """What each lane would have answered, as a truth or a text; where the recipe cannot be sent, it is sorted by it."""
