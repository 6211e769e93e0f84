"""A loop that knows nothing but the contract of searchers: results come in any order, and it is cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeAlias

from headwater.search.problem import Build, Problem
from headwater.search.protocol import Dropping, Searcher
from headwater.space import Config
from headwater.trials import Arrival, Decision, Report, Segment, Status, TrialRecord

Curve: TypeAlias = Callable[[Config, int], float]
"""The metric of a configuration at the end of an epoch; an exception fails the trial."""


class SearchLoop:
    """Trains one epoch of one trial at a time, up to `num_epochs`, and asserts that what is proposed can be trained."""

    def __init__(self, problem: Problem, curve: Curve, num_epochs: int = 20) -> None:
        self.num_epochs = num_epochs
        self.curve = curve
        self.records: dict[int, TrialRecord] = {}
        """The record by number; it holds trials that are under way too, when a run was cut."""
        self.start_epochs: dict[int, int] = {}
        """Where each trial began: at 0, or where its parent stood."""
        self.arrivals: list[Arrival] = []
        """Where segments ended, in the order in which the searcher was told."""
        self._problem = problem

    def run(
        self,
        build: Build,
        *,
        num_trials: int | None = None,
        slots: int = 1,
        seed: int | None = None,
        max_reports: int | None = None,
        rebuild_at: int | None = None,
    ) -> tuple[TrialRecord, ...]:
        """Run to the end on so many slots, from where the run before was cut, and return the record.

        With a `seed`, results come in a random order, and segments are asked for at random moments and in random
        numbers. After `max_reports` the run is cut, as if the study were killed. After `rebuild_at` of them, another
        searcher takes over that knows the record alone, while the trials train on.
        """
        problem = replace(self._problem, num_trials=num_trials or self._problem.num_trials)
        loop = _Loop(self, build(self._add_record(problem)), problem.metric)
        rng = None if seed is None else Random(seed)
        num_reports = 0
        while loop.fill(slots, rng) and num_reports != max_reports:
            running = list(loop.running)
            loop.train(rng.choice(running) if rng else running[0])
            num_reports += 1
            if num_reports == rebuild_at:
                loop.take_over(build(self._add_record(problem)))
        return tuple(self.records[number] for number in sorted(self.records))

    def _add_record(self, problem: Problem) -> Problem:
        known = tuple(self.records[number] for number in sorted(self.records))
        return replace(problem, known=known, arrivals=tuple(self.arrivals))


class _Loop:
    """Trains one epoch of one trial at a time."""

    def __init__(self, study: SearchLoop, searcher: Searcher, metric: str) -> None:
        self.running: dict[int, Segment] = {}
        self._study = study
        self._searcher = searcher
        self._metric = metric

    def take_over(self, searcher: Searcher) -> None:
        """Go on with a searcher that knows the record alone: it begins with what is under way."""
        self._searcher = searcher
        if self.running:
            again = searcher.propose(len(self.running))
            assert {segment.number: segment for segment in again} == self.running

    def fill(self, slots: int, rng: Random | None) -> bool:
        """Open some of what the searcher proposes, and say whether anything is under way now."""
        num_free = slots - len(self.running)
        count = rng.randint(0, num_free) if rng and self.running else num_free
        segments = self._searcher.propose(count)
        assert len(segments) <= count
        for number in self._searcher.take_dropped() if isinstance(self._searcher, Dropping) else ():
            assert self._study.records[number].status is Status.PAUSED, f"trial {number} is dropped, but not paused"
            self._end(number, Status.STOPPED)
        for segment in segments:
            self._open(segment)
        return bool(self.running)

    def train(self, number: int) -> None:
        """Train a trial for one epoch."""
        record = self._study.records[number]
        epoch = max(record.epochs, self._study.start_epochs[number]) + 1
        if epoch > self._study.num_epochs:
            self._close(number, Status.COMPLETED)
            return
        try:
            value = self._study.curve(record.config, epoch)
        except Exception:  # it stands for the trial's own code
            self._close(number, Status.FAILED)
            return
        report = Report(number=number, epoch=epoch, metrics={self._metric: value})
        self._study.records[number] = replace(record, history=(*record.history, report))
        decision = self._searcher.observe(report)
        if decision is Decision.STOP:
            self._close(number, Status.STOPPED)
        elif epoch == self._study.num_epochs:
            self._close(number, Status.COMPLETED)
        elif decision is Decision.PAUSE or epoch == self.running[number].until:
            self._close(number, Status.PAUSED)

    def _open(self, segment: Segment) -> None:
        number, records = segment.number, self._study.records
        if number not in records:
            parent = segment.parent
            assert number == len(records), f"trial {number} is proposed when there are {len(records)}"
            assert parent is None or parent not in self.running, f"parent {parent} of trial {number} is not paused"
            self._study.start_epochs[number] = 0 if parent is None else records[parent].epochs
            records[number] = TrialRecord(number=number, config=segment.config, status=Status.RUNNING)
        record = records[number]
        assert number not in self.running, f"trial {number} is under way already"
        assert record.config == segment.config, f"the configuration of trial {number} has changed"
        assert not record.status.is_final, f"trial {number} is over"
        assert segment.until is None or segment.until > record.epochs, f"trial {number} has nothing to train"
        records[number] = replace(record, status=Status.RUNNING)
        self.running[number] = segment

    def _close(self, number: int, status: Status) -> None:
        self._end(number, status)
        del self.running[number]
        self._searcher.finish(number, status)

    def _end(self, number: int, status: Status) -> None:
        record = self._study.records[number]
        self._study.records[number] = replace(record, status=status)
        self._study.arrivals.append(Arrival(number=number, epoch=record.epochs, status=status))
