"""Random search: every trial drawn on its own, and trained to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

from headwater.search.sequence import walk_trials
from headwater.search.tried import Tried
from headwater.space import Config, Space
from headwater.trials import Decision, Report, Segment, Status, TrialRecord


class RandomSearch:
    """Draws configurations from the space.

    What trial n gets depends on the space, the seed and n alone: neither on how many run at once nor on their results.
    No configuration comes twice; the search ends after `num_trials`, or when a finite space has nothing left.
    """

    def __init__(
        self, space: Space, seed: int, num_trials: int | None = None, known: Sequence[TrialRecord] = ()
    ) -> None:
        self._segments = walk_trials(_draw_configs(Tried(space, seed)), num_trials, known)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: no draw depends on a result."""


def _draw_configs(tried: Tried) -> Iterator[Config]:
    for number in count():
        config = tried.draw(number)
        if config is None:
            return
        yield config
