"""Searches that choose what to try with Optuna's samplers, and train every trial to the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType

from headwater.errors import StudyError
from headwater.search.ledger import Ledger
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher
from headwater.search.scheduled import ScheduledSearch
from headwater.search.stages import Lesson
from headwater.search.suggesting import Intake, Suggest, build_suggester
from headwater.search.timeline import Timeline
from headwater.search.tried import Tried
from headwater.settings import set_whole
from headwater.trials import Segment

CONCURRENCY = 16
"""How many trials are imagined to run at once where suggestions learn from results."""

_WITH_STARTUP = ("tpe", "gp", "cmaes")
_CONCURRENCIES: Mapping[object, int] = MappingProxyType({"random": 256, "qmc": 256})


@dataclass(frozen=True)
class OptunaSearch:
    """Takes each trial's configuration from an Optuna sampler.

    ```python
    study = hw.Study(train, space=space, metric="loss", search=hw.search.OptunaSearch("gp", concurrency=4))
    study = hw.Study(train, space=space, metric="loss", search=optuna.samplers.NSGAIISampler(seed=0))
    ```

    The suggestion for trial n is made when the results of all trials up to n - `concurrency` are in, and sees exactly
    those. So a small `concurrency` makes better use of results, and a large one of lanes and devices.
    """

    sampler: Suggest = "tpe"
    """One of "tpe", "gp", "cmaes", "qmc" and "random", or a sampler of Optuna's, with a seed of its own."""
    _: KW_ONLY
    concurrency: int | None = None
    """How many trials are imagined to run at once, on whatever devices; None for 16, or 256 if nothing is learnt."""
    num_startup: int | None = None
    """How many trials are drawn at random before the sampler models anything; None for Optuna's own number."""

    def __post_init__(self) -> None:
        set_whole(self, "concurrency", 1)
        set_whole(self, "num_startup", 0)
        if self.num_startup is not None and self.sampler not in _WITH_STARTUP:
            names = ", ".join(map(repr, _WITH_STARTUP))
            raise StudyError(f"num_startup is for {names}; give {self.sampler!r} its settings when you build it")

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        settings = {} if self.num_startup is None else {"n_startup_trials": self.num_startup}
        suggester = build_suggester(self.sampler, problem, Tried(problem.space, problem.seed), settings)
        ledger = Ledger(problem)
        default = _CONCURRENCIES.get(self.sampler, CONCURRENCY)
        policy = TrainToEnd(Intake(problem, suggester), ledger)
        return ScheduledSearch(Timeline(policy, ledger, self.concurrency or default), ledger)


class TrainToEnd:
    """Starts a new trial whenever a worker is free, and never stops one."""

    def __init__(self, intake: Intake, ledger: Ledger) -> None:
        self._intake = intake
        self._ledger = ledger

    def start(self) -> Segment | None:
        """Start a new trial."""
        return self._intake.enter()

    def take(self, segment: Segment, score: float) -> None:
        """Pass on what the trial reached."""
        others = self._ledger.others(segment.number)
        violations = self._ledger.violations(segment.number)
        lesson = Lesson(number=segment.number, epochs=None, score=score, others=others, violations=violations)
        self._intake.learn(lesson)
