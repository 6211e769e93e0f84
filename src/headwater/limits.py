"""When a study has had enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a study, or a trial in it, has had enough."""

    num_trials: int | None = None
    max_epochs: int | None = None
    """How many epochs a trial trains at most."""
    seconds: float | None = None
    """How long this run may take; what is under way then can be resumed."""
    reserve: Callable[[float], float] | None = None
    """How many of these seconds to leave over, given how many steps a whole trial takes."""
    target: float | None = None
    """A value of the metric that is good enough: the study ends when a trial reaches it."""
