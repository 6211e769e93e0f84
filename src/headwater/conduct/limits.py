"""When a study has had enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.settings import read_number, read_whole
from headwater.trials import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a study, or a trial in it, has had enough."""

    num_trials: int | None = None
    max_epochs: int | None = None
    """How many epochs a trial trains at most."""
    trial_timeout: float | None = None
    """How many seconds a trial trains at most; it is stopped at the report after."""
    deadline: Deadline = field(default_factory=Deadline.start)
    """By when the run is to be over, by the clock that started with it; what is under way then can be resumed."""
    reserve: Callable[[float], float] | None = None
    """How many seconds to leave over for what comes after, given how many steps a whole trial takes; 0: not known."""
    halt: Callable[[], str | None] | None = None
    """Says why whoever trains must end the run, such as the budget for its nodes; None where it need not."""
    target: float | None = None
    """A value of the metric that is good enough: the study ends when a trial reaches it."""


def read_limits(num_trials: object, time_budget: object, target: object) -> Limits:
    """Return the limits that a user has set; the clock starts now.

    Raises:
        StudyError: One of them is no number of its kind.
    """
    return Limits(
        num_trials=None if num_trials is None else read_whole("num_trials", num_trials),
        deadline=Deadline.start(None if time_budget is None else read_number("time_budget", time_budget, 0)),
        target=None if target is None else read_number("target", target),
    )
