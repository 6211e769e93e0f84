"""A list of configurations, each trained once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from headwater.search.problem import Problem
from headwater.search.sequence import walk_trials
from headwater.space import Config
from headwater.trials import Decision, Report, Segment, Status


@dataclass(frozen=True, slots=True)
class Listed:
    """Tries the configurations that are given, in their order."""

    configs: Sequence[Config]

    def __call__(self, problem: Problem) -> ListedSearch:
        """Build the searcher."""
        return ListedSearch(self.configs, problem)


class ListedSearch:
    """Proposes a list of configurations."""

    def __init__(self, configs: Sequence[Config], problem: Problem) -> None:
        self._segments = walk_trials(configs, problem.num_trials, problem.known)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: the list is fixed."""
