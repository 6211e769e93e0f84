"""Median stopping: trials that fall behind what earlier ones had on average are stopped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import median

from headwater.search.ledger import Ledger
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher
from headwater.search.sampling import CONCURRENCY
from headwater.search.scheduled import ScheduledSearch
from headwater.search.stages import Lesson
from headwater.search.suggesting import Intake, Suggest, build_intake, check_suggest
from headwater.search.timeline import Timeline
from headwater.settings import set_whole
from headwater.trials import Decision, Report, Segment


@dataclass(frozen=True, kw_only=True)
class MedianStopping:
    """Stops a trial at an epoch at which its best is worse than the median of the others' averages up to there.

    The others are the trials that came to their end among those up to n - `concurrency`, for trial n. They are all
    known when it begins, so a trial is judged at each report, without a pause. The rule is Google Vizier's.
    """

    grace_epochs: int = 1
    """How many epochs every trial may train."""
    min_trials: int = 5
    """With fewer others than this, none is stopped."""
    suggest: Suggest = "random"
    concurrency: int = CONCURRENCY
    """How many trials are imagined to run at once, on whatever devices."""

    def __post_init__(self) -> None:
        set_whole(self, "grace_epochs", 0)
        set_whole(self, "min_trials", 1)
        set_whole(self, "concurrency", 1)
        check_suggest(self.suggest)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        ledger = Ledger(problem)
        policy = _Median(self, build_intake(self.suggest, problem), ledger)
        return ScheduledSearch(Timeline(policy, ledger, self.concurrency), ledger, policy.judge)


class _Median:
    """Remembers which trials had come to their end when each began."""

    def __init__(self, settings: MedianStopping, intake: Intake, ledger: Ledger) -> None:
        self._settings = settings
        self._intake = intake
        self._ledger = ledger
        self._averages: list[tuple[float, ...]] = []
        self._num_others: dict[int, int] = {}
        self._median = lru_cache(maxsize=1024)(self._find_median)

    def start(self) -> Segment | None:
        trial = self._intake.enter()
        if trial is not None:
            self._num_others[trial.number] = len(self._averages)
        return trial

    def take(self, segment: Segment, score: float) -> None:
        curve = self._ledger.curve(segment.number)
        if curve and self._ledger.has_completed(segment.number):
            self._averages.append(tuple(total / num for num, total in enumerate(accumulate(curve), start=1)))
        self._intake.learn(Lesson(number=segment.number, epochs=None, score=score))

    def judge(self, report: Report) -> Decision:
        num_others = self._num_others[report.number]
        if report.epoch <= self._settings.grace_epochs or num_others < self._settings.min_trials:
            return Decision.CONTINUE
        is_behind = min(self._ledger.curve(report.number)) > self._median(num_others, report.epoch)
        return Decision.STOP if is_behind else Decision.CONTINUE

    def _find_median(self, num_others: int, epoch: int) -> float:
        return median(averages[min(epoch, len(averages)) - 1] for averages in self._averages[:num_others])
