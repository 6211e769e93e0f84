"""Asynchronous successive halving: no trial waits for a whole stage to be done."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headwater.search.ledger import INFEASIBLE, Ledger
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher
from headwater.search.rungs import check_ladder, choose_max_epochs, list_rungs
from headwater.search.scheduled import ScheduledSearch
from headwater.search.stages import Lesson
from headwater.search.suggesting import Intake, Suggest, build_intake, check_suggest
from headwater.search.timeline import Timeline
from headwater.settings import set_whole
from headwater.trials import Segment

CONCURRENCY = 64
"""How many trials are imagined to run at once where only promotions depend on results."""


@dataclass(frozen=True, kw_only=True)
class ASHA:
    """Asynchronous successive halving, as in Li et al., "A System for Massively Parallel Hyperparameter Tuning".

    Trials pause at rungs: after `min_epochs`, `reduction` times as many, and so on up to `max_epochs`. A worker that
    becomes free promotes the best paused trial that is among the best `reduction`-th of its rung, from the highest
    rung down, and starts a new trial where there is none.
    """

    reduction: int = 3
    min_epochs: int = 1
    max_epochs: int | None = None
    """The highest rung; None for the study's limit, or for rungs up to the training function's own end."""
    promote: bool = True
    """False for the stopping variant: a trial goes on at once if it is good enough for its rung, and never if not."""
    suggest: Suggest = "random"
    concurrency: int = CONCURRENCY
    """How many trials are imagined to run at once, on whatever devices."""

    def __post_init__(self) -> None:
        check_ladder(self)
        set_whole(self, "concurrency", 1)
        check_suggest(self.suggest)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        return build_asha(self, problem, build_intake(self.suggest, problem))


def build_asha(settings: ASHA, problem: Problem, intake: Intake) -> Searcher:
    """Build asynchronous halving on another source of trials."""
    max_epochs = choose_max_epochs(settings.max_epochs, problem, settings.min_epochs)
    ladder = Ladder(
        list_rungs(reduction=settings.reduction, min_epochs=settings.min_epochs, max_epochs=max_epochs),
        settings.reduction,
    )
    ledger = Ledger(problem)
    policy = Promotion(ladder, intake) if settings.promote else Stopping(ladder, intake, ledger)
    return ScheduledSearch(Timeline(policy, ledger, settings.concurrency), ledger)


class Rung:
    """The trials that were compared after so many epochs, best first; equals by number."""

    def __init__(self, until: int) -> None:
        self.until = until
        self._results: list[tuple[float, int]] = []
        self._paused: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._results)

    def add(self, number: int, score: float) -> int:
        """Enter a result, and return its rank from 0."""
        insort(self._results, (score, number))
        if score < INFEASIBLE:
            insort(self._paused, (score, number))
        return bisect_left(self._results, (score, number))

    def can_promote(self, reduction: int) -> bool:
        """Whether the best paused trial is among the best `reduction`-th."""
        return bool(self._paused) and bisect_left(self._results, self._paused[0]) < len(self) // reduction

    def promote(self) -> int:
        """Take out the best paused trial."""
        return self._paused.pop(0)[1]


class Ladder:
    """The rungs, as many as have been reached."""

    def __init__(self, epochs: Iterator[int], reduction: int) -> None:
        self.reduction = reduction
        self._epochs = epochs
        self._rungs: list[Rung] = []
        self._grow()

    @property
    def first(self) -> int:
        """The epoch of the lowest rung."""
        return self._rungs[0].until

    def find(self, until: int | None) -> Rung:
        """Return the rung at this epoch."""
        return next(rung for rung in self._rungs if rung.until == until)

    def after(self, rung: Rung) -> int | None:
        """Return the epoch of the next rung; None where this is the highest."""
        index = self._rungs.index(rung) + 1
        if index == len(self._rungs):
            self._grow()
        return self._rungs[index].until if index < len(self._rungs) else None

    def promote(self) -> tuple[int, int] | None:
        """Take out the trial to be promoted next, and return it with the epoch that it is to reach."""
        for rung in reversed(self._rungs):
            if rung.can_promote(self.reduction) and (until := self.after(rung)) is not None:
                return rung.promote(), until
        return None

    def _grow(self) -> None:
        self._rungs.extend(Rung(until) for until in [next(self._epochs, None)] if until is not None)


class Promotion:
    """Promotes the best of each rung, whenever a worker is free."""

    def __init__(self, ladder: Ladder, intake: Intake) -> None:
        self._ladder = ladder
        self._intake = intake
        self._trials: dict[int, Segment] = {}

    def start(self) -> Segment | None:
        """Promote a trial, or start a new one."""
        promoted = self._ladder.promote()
        if promoted is not None:
            number, until = promoted
            return replace(self._trials[number], until=until)
        trial = self._intake.enter()
        if trial is None:
            return None
        self._trials[trial.number] = trial
        return replace(trial, until=self._ladder.first)

    def take(self, segment: Segment, score: float) -> None:
        """Enter the result at its rung."""
        self._ladder.find(segment.until).add(segment.number, score)
        self._intake.learn(Lesson(number=segment.number, epochs=segment.until, score=score))


class Stopping:
    """Decides at once whether a trial goes on from its rung.

    It does if it is among the best `reduction`-th of those that have been there, itself included, or if there have
    been too few to tell.
    """

    def __init__(self, ladder: Ladder, intake: Intake, ledger: Ledger) -> None:
        self._ladder = ladder
        self._intake = intake
        self._ledger = ledger
        self._going_on: deque[Segment] = deque()

    def start(self) -> Segment | None:
        """Go on with the trial that has just passed its rung, or start a new one."""
        if self._going_on:
            return self._going_on.popleft()
        trial = self._intake.enter()
        return None if trial is None else replace(trial, until=self._ladder.first)

    def take(self, segment: Segment, score: float) -> None:
        """Decide what becomes of the trial."""
        self._intake.learn(Lesson(number=segment.number, epochs=segment.until, score=score))
        rung = self._ladder.find(segment.until)
        place = rung.add(segment.number, score)
        is_good = len(rung) < self._ladder.reduction or place < -(-len(rung) // self._ladder.reduction)
        until = self._ladder.after(rung)
        if until is None:
            return
        if is_good and score < INFEASIBLE:
            self._going_on.append(replace(segment, until=until))
        else:
            self._ledger.drop(segment.number)
