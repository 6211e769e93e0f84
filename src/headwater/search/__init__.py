"""What to try next, for how long, and what to drop."""

from headwater.search.asha import ASHA
from headwater.search.bohb import BOHB, RungModel, SyncBOHB
from headwater.search.building import SEARCHES, build_searcher, check_search
from headwater.search.grid import GridSearch
from headwater.search.halving import SHA, Hyperband
from headwater.search.listed import Listed
from headwater.search.median import MedianStopping
from headwater.search.pbt import PBT
from headwater.search.problem import Build, Problem, ResultOrder
from headwater.search.protocol import Dropping, Searcher, Stage, Staged, list_brackets
from headwater.search.random import RandomSearch
from headwater.search.rungs import plan_brackets, plan_halving
from headwater.search.sampling import OptunaSearch

__all__ = [
    "ASHA",
    "BOHB",
    "PBT",
    "SEARCHES",
    "SHA",
    "Build",
    "Dropping",
    "GridSearch",
    "Hyperband",
    "Listed",
    "MedianStopping",
    "OptunaSearch",
    "Problem",
    "RandomSearch",
    "ResultOrder",
    "RungModel",
    "Searcher",
    "Stage",
    "Staged",
    "SyncBOHB",
    "build_searcher",
    "check_search",
    "list_brackets",
    "plan_brackets",
    "plan_halving",
]
