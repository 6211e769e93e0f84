"""Random search: every trial drawn on its own, and trained to the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Self

from headwater.search.problem import Problem
from headwater.search.protocol import Stage
from headwater.search.sequence import plan_walk, walk_trials
from headwater.search.tried import Tried
from headwater.space import Config, Space
from headwater.trials import Decision, Report, Segment, Status, TrialRecord


class RandomSearch:
    """Draws configurations from the space.

    What trial n gets depends on the space, the seed and n alone: neither on how many run at once nor on their results.
    No configuration comes twice; the search ends after `num_trials`, or when a finite space has nothing left.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        num_trials: int | None = None,
        known: Sequence[TrialRecord] = (),
        points: Mapping[int, Config] | None = None,
    ) -> None:
        self._segments = walk_trials(_draw_configs(Tried(space, seed), points or {}), num_trials, known)
        self._brackets = plan_walk(space, num_trials)

    @classmethod
    def build(cls, problem: Problem) -> Self:
        """Build the search of a problem."""
        return cls(problem.space, problem.seed, problem.num_trials, problem.known, problem.points)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: no draw depends on a result."""

    def stages(self) -> Sequence[Sequence[Stage]] | None:
        """Return one stage: every trial, to its end; None where there is no end of trials."""
        return self._brackets


def _draw_configs(tried: Tried, points: Mapping[int, Config]) -> Iterator[Config]:
    for point in points.values():
        tried.add(point)
    for number in count():
        config = points[number] if number in points else tried.draw(number)
        if config is None:
            return
        yield config
