"""Why lanes that started together cannot stay together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.space import Config


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a value follows from a trial's configuration, so that lanes can be sorted by it before they start."""

    label: str
    evaluate: Callable[[Config], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What the code asked of the lanes that they could not answer as one."""

    recipe: Recipe | None
    """What sorts them, or None where only their tensors can tell."""
    reason: str
    answers: tuple[Any, ...] = ()
    """What each lane would have answered, where there is no recipe."""
