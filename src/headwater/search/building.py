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
        "random": RandomSearch.build,
        "grid": GridSearch.build,
        "tpe": OptunaSearch("tpe"),
        "gp": OptunaSearch("gp"),
        "cmaes": OptunaSearch("cmaes"),
        "qmc": OptunaSearch("qmc"),
        "nsga2": OptunaSearch("nsga2"),
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
FOR_SEVERAL = ("nsga2", "random", "grid", "qmc", "tpe")
"""Searches of studies in which several metrics count."""
FOR_CONSTRAINTS = ("nsga2", "tpe", "gp", "random", "grid", "qmc")
"""Searches of studies with constraints; the first three learn from them."""


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


def check_several(search: object) -> None:
    """Refuse a search that does not know what to do with several metrics.

    Raises:
        StudyError: It is none of those that do.
    """
    if search not in FOR_SEVERAL and not isinstance(search, OptunaSearch) and not is_sampler(search):
        names = ", ".join(map(repr, FOR_SEVERAL))
        raise StudyError(
            f"search {search!r} goes by one metric; for several there are {names} and samplers of Optuna's"
        )


def check_constrained(search: object) -> None:
    """Refuse a search that would stop or prefer trials without regard to constraints.

    Raises:
        StudyError: It is none of those that heed them, or are as good without.
    """
    name = search.sampler if isinstance(search, OptunaSearch) else search
    if name not in FOR_CONSTRAINTS:
        names = ", ".join(map(repr, FOR_CONSTRAINTS))
        shown = name if isinstance(name, str) else type(name).__name__
        raise StudyError(f"search {shown!r} goes by the metric alone; for constraints there are {names}")


def _show_possible() -> str:
    names = ", ".join(repr(name) for name in SEARCHES)
    return f"possible are {names}, a searcher, an Optuna sampler, or a function that builds a searcher from a Problem"
