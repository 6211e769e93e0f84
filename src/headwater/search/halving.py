"""Successive halving and Hyperband: whole stages of trials, of which the best go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

from headwater.errors import StudyError
from headwater.search.ledger import Ledger
from headwater.search.problem import Problem
from headwater.search.protocol import Searcher, Stage
from headwater.search.rungs import (
    check_ladder,
    choose_max_epochs,
    plan_bracket,
    plan_brackets,
    plan_halving,
    rank,
    require_max_epochs,
)
from headwater.search.scheduled import ScheduledSearch
from headwater.search.sequence import count_trials
from headwater.search.stages import Course, Lesson, Stages
from headwater.search.suggesting import Intake, Suggest, build_intake, check_suggest, learns
from headwater.settings import set_whole
from headwater.trials import Segment


@dataclass(frozen=True, kw_only=True)
class SHA:
    """Successive halving: all trials train a little, the best of them longer, and the last to the end.

    Each stage keeps a `reduction`-th of the trials and trains them for `reduction` times as many further epochs.
    """

    reduction: int = 3
    min_epochs: int = 1
    max_epochs: int | None = None
    """Where the last trial ends; None for the study's limit, or the training function's own end."""
    suggest: Suggest = "random"

    def __post_init__(self) -> None:
        check_ladder(self)
        check_suggest(self.suggest)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        max_epochs = choose_max_epochs(self.max_epochs, problem, self.min_epochs)
        if problem.num_trials is None and problem.space.size is None:
            raise StudyError("successive halving starts with all of its trials, so run needs num_trials")

        def plan(num_trials: int) -> Sequence[Stage]:
            return plan_halving(num_trials, reduction=self.reduction, min_epochs=self.min_epochs, max_epochs=max_epochs)

        ledger = Ledger(problem)
        intake = build_intake(self.suggest, problem)
        num_trials = count_trials(problem.space, problem.num_trials)

        def open_bracket() -> Iterator[Course]:
            yield run_bracket(intake.enter_many(None), plan, ledger)

        stages = Stages(open_bracket(), ledger, 1, intake.learn)
        return ScheduledSearch(stages, ledger, list_brackets=lambda: [plan(num_trials)] if num_trials else None)


@dataclass(frozen=True, kw_only=True)
class Hyperband:
    """Brackets of successive halving, from many trials that start small to few that train to the end at once.

    Brackets follow one another, round after round, until there are as many trials as the study wants; the last bracket
    is cut.
    """

    reduction: int = 3
    min_epochs: int = 1
    max_epochs: int | None = None
    """How long the best trials train; None for the study's limit."""
    suggest: Suggest = "random"
    concurrency: int | None = None
    """How many brackets are under way at once; None for a whole round, or one where suggestions learn from results."""

    def __post_init__(self) -> None:
        check_ladder(self)
        set_whole(self, "concurrency", 1)
        check_suggest(self.suggest)

    def __call__(self, problem: Problem) -> Searcher:
        """Build the searcher."""
        return build_hyperband(self, problem, build_intake(self.suggest, problem))


def build_hyperband(settings: Hyperband, problem: Problem, intake: Intake, name: str = "Hyperband") -> Searcher:
    """Build Hyperband on another source of trials."""
    max_epochs = require_max_epochs(name, settings.max_epochs, problem, settings.min_epochs)
    brackets = plan_brackets(max_epochs, reduction=settings.reduction, min_epochs=settings.min_epochs)
    ledger = Ledger(problem)

    def open_brackets() -> Iterator[Course]:
        for index, stages in cycle(enumerate(brackets)):
            trials = intake.enter_many(stages[0].num_trials)
            if not trials:
                return
            yield run_bracket(trials, partial(plan, index=index), ledger)

    def plan(num_trials: int, index: int) -> Sequence[Stage]:
        power = len(brackets) - 1 - index
        return plan_bracket(num_trials, power, reduction=settings.reduction, max_epochs=max_epochs)

    at_once = settings.concurrency or (1 if learns(settings.suggest) else len(brackets))
    num_trials = count_trials(problem.space, problem.num_trials)
    stages = Stages(open_brackets(), ledger, at_once, intake.learn)
    return ScheduledSearch(stages, ledger, list_brackets=lambda: _cut_brackets(brackets, plan, num_trials))


def _cut_brackets(
    brackets: Sequence[Sequence[Stage]], plan: Callable[[int, int], Sequence[Stage]], num_trials: int | None
) -> list[Sequence[Stage]] | None:
    """Return the brackets that so many trials fill, round after round, the last as short as what is left."""
    if num_trials is None:
        return None
    planned: list[Sequence[Stage]] = []
    for index, stages in cycle(enumerate(brackets)):
        if not num_trials:
            return planned
        size = min(num_trials, stages[0].num_trials)
        planned.append(plan(size, index))
        num_trials -= size
    raise AssertionError("cycle has no end")


def run_bracket(trials: Sequence[Segment], plan: Callable[[int], Sequence[Stage]], ledger: Ledger) -> Course:
    """Train the trials stage by stage, dropping the worst after each."""
    lessons: list[Lesson] = []
    left = {trial.number: trial for trial in trials}
    stages = plan(len(left)) if left else ()
    for index, stage in enumerate(stages):
        scores = yield [replace(trial, until=stage.until) for trial in left.values()]
        found = list(zip(scores, left, strict=True))
        lessons += [Lesson(number=number, epochs=stage.until, score=score) for score, number in found]
        num_kept = stages[index + 1].num_trials if index + 1 < len(stages) else 0
        kept = rank([item for item in found if ledger.can_go_on(item[1], stage.until)], num_kept)
        if num_kept:
            for number in sorted(left.keys() - kept):
                ledger.drop(number)
        left = {number: left[number] for number in sorted(kept)}
    return lessons
