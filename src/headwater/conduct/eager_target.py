"""Which trial the target could start with, while the search still goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.space import Config
from headwater.store import Store, StudyInfo
from headwater.trials import INFEASIBLE, Lane, Objective, Report, Status


class EagerChoice:
    """Listens to a search, and knows the best trial that has completed when a share of all is done."""

    def __init__(self, objective: Objective, num_trials: int | None, share: float) -> None:
        self.name = ""
        """What the record calls the search."""
        self._objective = objective
        self._num_wanted = math.inf if num_trials is None or share >= 1 else share * num_trials
        self._values: dict[int, float] = {}
        self._configs: dict[int, Config] = {}
        self._completed: list[int] = []
        self._ended: set[int] = set()

    def find(self) -> tuple[int, Config] | None:
        """Return the trial that the target could start with now, and its configuration; None while it is too early."""
        if len(self._ended) < self._num_wanted or not self._completed:
            return None
        best = min(self._completed, key=lambda number: (self._score(number), number))
        return best, self._configs[best]

    def on_study(self, info: StudyInfo, store: Store) -> None:
        """Note the name."""
        self.name = info.name

    def on_start(self, lanes: Sequence[Lane]) -> None:
        """Note configurations."""
        self._configs |= {lane.number: lane.config for lane in lanes}

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Note values."""
        self._values |= {one.number: one.metrics.get(self._objective.metric, math.nan) for one in reports}

    def on_end(self, number: int, status: Status) -> None:
        """Note which trials are done, if only for now."""
        self._ended.add(number)
        if status is Status.COMPLETED and self._score(number) < INFEASIBLE:
            self._completed.append(number)

    def _score(self, number: int) -> float:
        return self._objective.score(self._values.get(number, math.nan))
