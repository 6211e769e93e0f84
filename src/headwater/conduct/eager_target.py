"""Which trial the target could start with, while the search still goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.plan import Standing, choose_early
from headwater.plan.agreement import FEWEST_CHANGES
from headwater.space import Config
from headwater.store import Store, StudyInfo
from headwater.trials import INFEASIBLE, Lane, Objective, Report, Status, TrialRecord


class EagerChoice:
    """Listens to a search, and knows the best trial that has completed when a share of all is done.

    Those of that share come first where later ones are better by chance only (`choose_early`).
    """

    def __init__(self, objective: Objective, num_trials: int | None, share: float, *, may_start: bool = True) -> None:
        self.name = ""
        """What the record calls the search."""
        self._objective = objective
        self._num_trials = num_trials
        self._num_early = math.inf if num_trials is None or share >= 1 else share * num_trials
        self._num_wanted = self._num_early if may_start else math.inf
        self._has_cut = False
        self._passed_over: int | None = None
        """The best trial, where the target trains with another."""
        self._values: dict[int, float] = {}
        self._changes: dict[int, float] = {}
        self._configs: dict[int, Config] = {}
        self._completed: list[int] = []
        self._ended: set[int] = set()

    def find(self) -> tuple[int, Config] | None:
        """Return the trial that the target could start with now, and its configuration; None while it is too early."""
        if len(self._ended) < self._num_wanted or not self._completed:
            return None
        best = self._choose(self._completed)
        return best, self._configs[best]

    @property
    def is_likely(self) -> bool:
        """Whether what `find` returns will most likely be the target.

        That is where the search goes by nothing that it has seen: all its trials are there, and it stopped none.
        """
        is_long = len(self._completed) >= 4 * FEWEST_CHANGES
        return is_long and not self._has_cut and len(self._configs) == self._num_trials

    def arrange(self, ranked: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
        """Return the trials of the search, best first, with the one first that the target is to train with."""
        metric, score = self._objective.metric, self._objective.score
        standings = []
        for trial in ranked:
            if trial.status is Status.COMPLETED:
                *_, before, last = (math.nan, *(score(one.metrics.get(metric, math.nan)) for one in trial.history))
                standings.append(Standing(trial.number, last, last - before))
        if not standings or ranked[0].status is not Status.COMPLETED:
            return ranked
        chosen = choose_early(standings, self._num_early)
        self._passed_over = ranked[0].number if chosen != ranked[0].number else None
        return sorted(ranked, key=lambda trial: trial.number != chosen)

    def explain(self, number: int) -> str:
        """Say whose configuration the target trains with."""
        text = f"the target trains with the configuration of trial {number}"
        if self._passed_over in (None, number):
            return text
        return f"{text}: trial {self._passed_over} came later, and is better by no more than the last epoch is chance"

    def _choose(self, numbers: Sequence[int]) -> int:
        standings = [Standing(one, self._score(one), self._changes.get(one, math.nan)) for one in numbers]
        return choose_early(standings, self._num_early)

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Note the name."""
        self.name = info.name

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Note configurations."""
        self._configs |= {lane.number: lane.config for lane in lanes}

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Note values, and what has changed since the reports before."""
        for one in reports:
            before = self._score(one.number)
            self._values[one.number] = one.metrics.get(self._objective.metric, math.nan)
            self._changes[one.number] = self._score(one.number) - before

    def on_end(self, number: int, status: Status) -> None:
        """Note which trials are done, if only for now."""
        self._ended.add(number)
        is_sound = self._score(number) < INFEASIBLE  # what diverges is stopped whatever the search thinks of it
        self._has_cut |= status is Status.PAUSED or (status is Status.STOPPED and is_sound)
        if status is Status.COMPLETED and self._score(number) < INFEASIBLE:
            self._completed.append(number)

    def _score(self, number: int) -> float:
        return self._objective.score(self._values.get(number, math.nan))
