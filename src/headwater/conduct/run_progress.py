"""Counting what a running study has done, for whoever watches it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from headwater.conduct.first_failures import FirstFailures
from headwater.conduct.standings import Standings
from headwater.store import StudyInfo
from headwater.trials import Lane, Pulse, Report, Result, Spending, Status, TrialRecord, average_replicas

WHOLE_SEARCHES = frozenset({"random", "grid", "tpe", "gp", "cmaes", "qmc", "nsga2", "Listed"})
"""Searches that leave every trial to come to its own end."""
ENOUGH_ENDED = 5
"""How long trials train is told by those that have ended: by so many at least,"""
ENOUGH_SHARE = 0.25
"""and by this share of all."""


class RunProgress:
    """The figures of one run; trials that an earlier run finished count as done."""

    def __init__(
        self,
        info: StudyInfo,
        num_total: int | None,
        known: Sequence[TrialRecord] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.num_lane_steps = 0
        self.num_epochs = 0
        """How many epochs the trials of the running group train."""
        self.seconds_alone: float | None = None
        """What the steps so far would have taken one by one, as far as that was measured."""
        self.spending: Spending | None = None
        """What is spent on nodes, as it was last heard."""
        self.standings = Standings(info, known)
        self.first_failures = FirstFailures(info.num_seeds, known)
        self._info = info
        self._num_seeds = info.num_seeds
        self._num_total = num_total
        self._trains_all = info.settings.get("search") in WHOLE_SEARCHES
        self._pauses = False
        self._clock = clock
        self._start = clock()
        self._begun = {record.number: record.epochs for record in known}
        self._num_known_epochs = sum(self._begun.values())
        self._num_ended_epochs = 0
        self._num_done = 0
        self._ended: set[int] = set()
        self._judged: set[int] = set()
        """Those that have ended or paused: a trial that waits to be promoted, and seldom is, counts as done."""
        self._num_judged_replicas: Counter[int] = Counter()
        self._failed: set[int] = set()
        self._running: dict[Hashable, tuple[int, int]] = {}
        self._num_lanes = 0
        self._share_foreseen: float | None = None
        self._is_stale = True
        for record in known:
            self.end(record.number, record.status)

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return self._clock() - self._start

    def begin(self, lanes: Sequence[Lane]) -> None:
        """Take in what is about to train."""
        self._pauses |= any(lane.until is not None for lane in lanes)
        self.first_failures.open(lanes)
        for lane in lanes:
            if lane.number not in self._begun:  # a trial that starts from another's state has trained nothing itself
                self._begun[lane.number] = lane.start_epoch
                self._num_known_epochs += lane.start_epoch

    def see(self, reports: Sequence[Report]) -> None:
        """Take in reports that have the metric."""
        for report in reports:
            self._begun[report.number] = report.epoch
            self.standings.see(report)

    def advance(self, key: Hashable, epoch: int, num_lanes: int) -> None:
        """Take in where a running group stands; one without lanes has ended."""
        self._is_stale = True
        _, num_before = self._running.pop(key, (0, 0))
        self._num_lanes += num_lanes - num_before
        if num_lanes:
            self._running[key] = epoch, num_lanes

    def end(self, number: int, status: Status) -> None:
        """Take in that a trial's segment has ended."""
        self._is_stale = True
        if status.is_final:
            self._ended.add(number)
            self._num_ended_epochs += self._begun.pop(number, 0)
        if status is not Status.RUNNING and number not in self._judged:
            self._judged.add(number)
            self._num_judged_replicas[number // self._num_seeds] += 1
            self._num_done += self._num_judged_replicas[number // self._num_seeds] == self._num_seeds
        if status is Status.FAILED:
            self._failed.add(number // self._num_seeds)
            self.standings.fail(number)

    def count_alone(self, num_lane_steps: int, seconds_per_step: float | None) -> None:
        """Add what these steps would have taken one by one, if that was measured."""
        if seconds_per_step is not None:
            self.seconds_alone = (self.seconds_alone or 0.0) + num_lane_steps * seconds_per_step

    def foresee(self) -> float | None:
        """Return how many seconds the rest takes if it goes on like this; None where it is open how much there is."""
        share = self.pulse().share_foreseen
        return None if share is None else self.seconds * (1 - share) / share

    def pulse(self) -> Pulse:
        """Sum up."""
        if self._is_stale:
            self._share_foreseen = self._foresee()
            self._is_stale = False
        best_number, best_value = self.standings.best or (None, None)
        return Pulse(
            num_done=self._num_done,
            num_failed=len(self._failed),
            num_total=self._num_total,
            num_lanes=self._num_lanes,
            num_lane_steps=self.num_lane_steps,
            seconds=self.seconds,
            share_done=self._share_done(),
            share_foreseen=self._share_foreseen,
            best_number=best_number,
            best_value=best_value,
            spending=self.spending,
        )

    def summarise(self, trials: Sequence[TrialRecord], storage: str) -> Result:
        """Return what came of these trials, with the figures of the run."""
        return Result(
            study=self._info.name,
            metric=self._info.metric,
            mode=self._info.mode,
            judge=self._info.objective.judge,
            also=self._info.also,
            constraints=self._info.constraints,
            trials=average_replicas(trials, self._num_seeds),
            storage=storage,
            num_lane_steps=self.num_lane_steps,
            seconds=self.seconds,
            seconds_one_by_one=self.seconds_alone,
            spending=self.spending,
        )

    def _share_done(self) -> float:
        if not self._num_total:
            return 0.0
        if self._pauses:
            return min(len(self._judged) / (self._num_total * self._num_seeds), 1.0)
        num_epochs = sum(lanes * min(epochs, self.num_epochs) for epochs, lanes in self._running.values())
        under_way = num_epochs / self.num_epochs if self.num_epochs else 0.0
        return min((len(self._ended) + under_way) / (self._num_total * self._num_seeds), 1.0)

    def _foresee(self) -> float | None:
        """Return how much of this run's work is done, in epochs; None where it is open how long trials train.

        Where trials pause it is: how many will go on, and how far, is for the search to say.
        """
        expected = self._expect()
        if self._num_total is None or expected is None or self._pauses:
            return None
        done = self._num_ended_epochs + sum(self._begun.values()) - self._num_known_epochs
        num_to_come = max(self._num_total * self._num_seeds - len(self._ended) - len(self._begun), 0)
        left = sum(max(expected - epochs, 0.0) for epochs in self._begun.values()) + num_to_come * expected
        return done / (done + left) if done else None

    def _expect(self) -> float | None:
        """Return how many epochs a trial trains: as those that have ended, where they are enough to tell."""
        num_ended = len(self._ended)
        num_wanted = max(ENOUGH_ENDED, ENOUGH_SHARE * (self._num_total or 0) * self._num_seeds)
        if num_ended >= num_wanted:
            return self._num_ended_epochs / num_ended
        return self.num_epochs if self._trains_all and self.num_epochs else None
