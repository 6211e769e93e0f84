"""BOHB: halving whose new trials come from a model of what did well, asynchronous and synchronous."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.search.asha import ASHA, build_asha
from headwater.search.halving import Hyperband, build_hyperband
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher
from headwater.search.rungs import check_ladder
from headwater.search.sampling import CONCURRENCY
from headwater.search.suggesting import Intake
from headwater.search.tried import Tried
from headwater.settings import read_number, set_whole


@dataclass(frozen=True, kw_only=True)
class RungModel:
    """How BOHB models what did well: a Parzen estimator of the results at the highest rung that has enough of them.

    As in Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at Scale".
    """

    random_fraction: float = 1 / 3
    """How many of the trials are drawn at random all the same."""
    min_results: int | None = None
    """How many sound results are enough; None for three more than the space has domains."""

    def __post_init__(self) -> None:
        read_number("random_fraction", self.random_fraction, 0, 1)
        set_whole(self, "min_results", 2)

    def build_intake(self, problem: Problem) -> Intake:
        """Build the source of new trials."""
        from headwater.search.rung_model import RungModelSuggester

        num_domains = len(problem.space.domains)
        tried = Tried(problem.space, problem.seed)
        min_results = self.min_results or num_domains + 3
        return Intake(problem, RungModelSuggester(problem, tried, self.random_fraction, min_results))


@dataclass(frozen=True, kw_only=True)
class BOHB:
    """Asynchronous BOHB: promotions as in `ASHA`, and new trials from a model."""

    reduction: int = 3
    min_epochs: int = 1
    max_epochs: int | None = None
    """The highest rung; None for the study's limit, or for rungs up to the training function's own end."""
    concurrency: int = CONCURRENCY
    """How many trials are imagined to run at once, on whatever devices."""
    model: RungModel = RungModel()

    def __post_init__(self) -> None:
        check_ladder(self)
        set_whole(self, "concurrency", 1)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        settings = ASHA(
            reduction=self.reduction,
            min_epochs=self.min_epochs,
            max_epochs=self.max_epochs,
            concurrency=self.concurrency,
        )
        return build_asha(settings, problem, self.model.build_intake(problem))


@dataclass(frozen=True, kw_only=True)
class SyncBOHB:
    """Synchronous BOHB: the brackets of `Hyperband`, one after the other, and new trials from a model."""

    reduction: int = 3
    min_epochs: int = 1
    max_epochs: int | None = None
    """How long the best trials train; None for the study's limit."""
    model: RungModel = RungModel()

    def __post_init__(self) -> None:
        check_ladder(self)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        settings = Hyperband(
            reduction=self.reduction, min_epochs=self.min_epochs, max_epochs=self.max_epochs, concurrency=1
        )
        return build_hyperband(settings, problem, self.model.build_intake(problem), "SyncBOHB")
