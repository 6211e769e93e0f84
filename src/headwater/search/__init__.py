"""What to try next, for how long, and what to drop."""

from headwater.search.building import SEARCHES, Build, Problem, build_searcher
from headwater.search.grid import GridSearch
from headwater.search.protocol import Searcher
from headwater.search.random import RandomSearch

__all__ = ["SEARCHES", "Build", "GridSearch", "Problem", "RandomSearch", "Searcher", "build_searcher"]
