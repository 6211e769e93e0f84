"""Grid search: every configuration once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headwater.search.sequence import walk_trials
from headwater.space import Space
from headwater.trials import Decision, Report, Segment, Status, TrialRecord


class GridSearch:
    """Tries all configurations of a finite space in the order of definition, or the first `num_trials` of them.

    Raises:
        SpaceError: A key of the space has no end of values.
    """

    def __init__(self, space: Space, num_trials: int | None = None, known: Sequence[TrialRecord] = ()) -> None:
        self._segments = walk_trials(space.configurations(), num_trials, known)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: the order is fixed."""
