"""From what a user writes as `search=` to a searcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from headwater.errors import StudyError
from headwater.search.grid import GridSearch
from headwater.search.protocol import Searcher
from headwater.search.random import RandomSearch
from headwater.space import Space
from headwater.trials import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a study asks of its searcher."""

    space: Space
    metric: str
    mode: str
    """Whether "min" or "max" of the metric is wanted."""
    seed: int = 0
    num_trials: int | None = None
    """How many trials at most; None for as many as the space has."""
    known: tuple[TrialRecord, ...] = ()
    """What the record holds already, when a study is resumed."""

    def __post_init__(self) -> None:
        if self.num_trials is not None and self.num_trials < 1:
            raise StudyError(f"num_trials is {self.num_trials}; give 1 or more")


Build: TypeAlias = Callable[[Problem], Searcher]
"""A way of searching with its settings, still without a space."""

SEARCHES: Mapping[str, Build] = MappingProxyType(
    {
        "random": lambda problem: RandomSearch(problem.space, problem.seed, problem.num_trials, problem.known),
        "grid": lambda problem: GridSearch(problem.space, problem.num_trials, problem.known),
    }
)
"""What a name stands for."""


def build_searcher(search: str | Build | Searcher, problem: Problem) -> Searcher:
    """Build the searcher that a name or a function of the problem stands for; a searcher is taken as it is.

    Raises:
        StudyError: There is no such search.
    """
    if isinstance(search, Searcher) and not isinstance(search, type):
        return search
    build = SEARCHES.get(search) if isinstance(search, str) else search
    if not callable(build):
        raise StudyError(f"there is no search {search!r}; {_show_possible()}")
    searcher = build(problem)
    if not isinstance(searcher, Searcher):
        raise StudyError(f"search {search!r} built {searcher!r}, which lacks propose, observe or finish")
    return searcher


def _show_possible() -> str:
    names = ", ".join(repr(name) for name in SEARCHES)
    return f"possible are {names}, a searcher, or a function that builds one from a Problem"
