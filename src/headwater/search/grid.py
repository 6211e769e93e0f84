"""Grid search: every configuration once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Self

from headwater.search.problem import Problem
from headwater.search.protocol import Stage
from headwater.search.sequence import plan_walk, walk_trials
from headwater.space import Config, Space
from headwater.trials import Decision, Report, Segment, Status, TrialRecord


class GridSearch:
    """Tries all configurations of a finite space in the order of definition, or the first `num_trials` of them.

    Raises:
        SpaceError: A key of the space has no end of values.
    """

    def __init__(
        self,
        space: Space,
        num_trials: int | None = None,
        known: Sequence[TrialRecord] = (),
        points: Mapping[int, Config] | None = None,
    ) -> None:
        listed = space.configurations()  # refuses an endless space now, and not when it is searched
        self._segments = walk_trials(_mix(space, listed, points or {}), num_trials, known)
        self._brackets = plan_walk(space, num_trials)

    @classmethod
    def build(cls, problem: Problem) -> Self:
        """Build the search of a problem."""
        return cls(problem.space, problem.num_trials, problem.known, problem.points)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: the order is fixed."""

    def stages(self) -> Sequence[Sequence[Stage]] | None:
        """Return one stage: every trial, to its end."""
        return self._brackets


def _mix(space: Space, listed: Iterator[Config], points: Mapping[int, Config]) -> Iterator[Config]:
    """Yield points at their numbers, and everything else in order between them."""
    names = {repr(space.encode(point)) for point in points.values()}
    rest = (config for config in listed if not names or repr(space.encode(config)) not in names)
    for number in count():
        config = points[number] if number in points else next(rest, None)
        if config is None:
            return
        yield config
