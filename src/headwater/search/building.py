"""From what a user writes as `search=` to a searcher."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from headwater.errors import StudyError
from headwater.search.asha import ASHA
from headwater.search.bohb import BOHB, SyncBOHB
from headwater.search.grid import GridSearch
from headwater.search.halving import SHA, Hyperband
from headwater.search.median import MedianStopping
from headwater.search.pbt import PBT
from headwater.search.problem import Build, Problem
from headwater.search.protocol import Searcher
from headwater.search.random import RandomSearch
from headwater.search.sampling import OptunaSearch
from headwater.search.suggesting import is_sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

SEARCHES: Mapping[str, Build] = MappingProxyType(
    {
        "random": lambda problem: RandomSearch(problem.space, problem.seed, problem.num_trials, problem.known),
        "grid": lambda problem: GridSearch(problem.space, problem.num_trials, problem.known),
        "tpe": OptunaSearch("tpe"),
        "gp": OptunaSearch("gp"),
        "cmaes": OptunaSearch("cmaes"),
        "qmc": OptunaSearch("qmc"),
        "halving": SHA(),
        "hyperband": Hyperband(),
        "asha": ASHA(),
        "bohb": BOHB(),
        "sync-bohb": SyncBOHB(),
        "pbt": PBT(),
        "median": MedianStopping(),
    }
)
"""What a name stands for."""


def build_searcher(search: str | Build | Searcher | BaseSampler, problem: Problem) -> Searcher:
    """Build the searcher that a name, a function of the problem or an Optuna sampler stands for.

    A searcher is taken as it is.

    Raises:
        StudyError: There is no such search, or it lacks something for this problem.
    """
    if isinstance(search, Searcher) and not isinstance(search, type):
        return search
    if is_sampler(search):
        return OptunaSearch(search)(problem)
    check_search(search)
    build = SEARCHES.get(search) if isinstance(search, str) else search
    assert callable(build)
    searcher = build(problem)
    if not isinstance(searcher, Searcher):
        raise StudyError(f"search {search!r} built {searcher!r}, which lacks propose, observe or finish")
    return searcher


def check_search(search: object) -> None:
    """Refuse what no searcher can be built from.

    Raises:
        StudyError: There is no such search.
    """
    if isinstance(search, type) and not isinstance(search, Searcher):  # a searcher's own class may take a problem
        raise StudyError(f"search is the class {search.__name__}; give an object of it, as in {search.__name__}()")
    is_known = search in SEARCHES if isinstance(search, str) else callable(search) or isinstance(search, Searcher)
    if not is_known and not is_sampler(search):
        raise StudyError(f"there is no search {search!r}; {_show_possible()}")


def _show_possible() -> str:
    names = ", ".join(repr(name) for name in SEARCHES)
    return f"possible are {names}, a searcher, an Optuna sampler, or a function that builds a searcher from a Problem"
