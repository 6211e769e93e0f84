"""The trials of one study: opened as its searcher proposes them, judged at their reports, recorded all along."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.conduct.limits import Limits
from headwater.conduct.listeners import StudyLog
from headwater.conduct.opening import TrialOpener
from headwater.conduct.saving import TrialStates
from headwater.conduct.standings import explain_lack
from headwater.errors import StudyError
from headwater.search import Dropping, Searcher
from headwater.trials import Decision, Lane, Report, Saved, Segment, Status, TrialRecord

OPENED_AHEAD = 1024
"""So many trials are opened at a time: enough for groups of every kind, however many the study is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What becomes of the trials of a group that has reported."""

    leaving: Mapping[int, Status]
    """Those that leave it, and how they stand."""
    saved: list[int]
    kept: int | None
    """Whose weights are the best so far."""


class StudyTrials:
    """Knows where every trial stands, and decides what becomes of it."""

    def __init__(
        self,
        searcher: Searcher,
        limits: Limits,
        log: StudyLog,
        states: TrialStates,
        known: Sequence[TrialRecord] = (),
    ) -> None:
        self.lanes: dict[int, Lane] = {}
        """The trials that are open, as they ride in groups."""
        self.num_epochs = 0
        """How many epochs a trial trains, as far as its function has said so."""
        self._searcher = searcher
        self._take_dropped = searcher.take_dropped if isinstance(searcher, Dropping) else tuple
        self._limits = limits
        self._log = log
        self._states = states
        self._metric = log.recorder.info.metric
        self._epochs = {record.number: record.epochs for record in known}
        self._opener = TrialOpener(log.recorder, states.files, log.tell, self._epochs, known)
        self._held: list[Segment] = []
        self._saving: set[int] = set()
        self._over: set[int] = set()

    def open_more(self, num_waiting: int) -> list[Lane]:
        """Ask the searcher what comes next where few lanes wait, and return what can train now.

        What starts from a state that is still being saved waits for it.
        """
        segments = [*self._held, *self._propose(num_waiting)]
        self._held = [one for one in segments if one.number in self._saving or one.parent in self._saving]
        ready = [one for one in segments if one not in self._held] if self._held else segments
        if not ready:
            return []
        lanes = self._opener.open(ready)
        for lane in lanes:
            self._epochs.setdefault(lane.number, lane.start_epoch)
        self.lanes |= {lane.number: lane for lane in lanes}
        self._log.write_start(lanes, self._epoch_of)
        return lanes

    def reopen(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that were lost as they can go on: from their last states."""
        self._saving.difference_update(lane.number for lane in lanes)
        reopened = self._opener.reopen(lanes)
        self.lanes |= {lane.number: lane for lane in reopened}
        return reopened

    def judge(self, reports: Sequence[Report]) -> Judgement:
        """Record what the lanes of a group report, and decide what becomes of each.

        Epochs that are known already are passed over: a group that started again comes by them once more.
        """
        fresh = [report for report in reports if report.epoch > self._epochs.get(report.number, 0)]
        statuses = {report.number: self._decide(report) for report in fresh}
        failed = [report for report in fresh if statuses[report.number] is Status.FAILED]
        errors = {report.number: explain_lack(self._metric, report) for report in failed}
        fresh = [report for report in fresh if report.number not in errors]
        self._epochs |= {report.number: report.epoch for report in fresh}
        leaving = {number: status for number, status in statuses.items() if status is not Status.RUNNING}
        moves = [
            self._log.move(number, status, self._epoch_of, errors.get(number)) for number, status in leaving.items()
        ]
        self._log.recorder.write(fresh, moves)
        is_due = self._states.rule.is_due(reports[0].epoch)
        saved = self._states.choose_saved(reports, statuses, is_due=is_due)
        ended = [one for one in fresh if statuses[one.number].is_final or one.epoch >= self.num_epochs]
        kept = self._states.choose_kept(ended)
        self._log.show_reports(fresh)
        for number, status in leaving.items():
            self._end(number, status)
        return Judgement(leaving=leaving, saved=saved, kept=kept)

    def await_saving(self, numbers: Iterable[int]) -> None:
        """Take in that the states of these trials are being saved."""
        self._saving.update(numbers)

    def take_saved(self, event: Saved, numbers: Iterable[int]) -> None:
        """Take in what was saved, of the trials of this group."""
        self._saving.difference_update(numbers)
        self._states.take_saved(event, self._over.__contains__)

    def finish(self, lanes: Sequence[Lane], status: Status, error: str | None = None) -> None:
        """Take in that the training function came to its end for these, or raised."""
        moves = [self._log.move(lane.number, status, self._epoch_of, error) for lane in lanes]
        self._log.recorder.write(transitions=moves)
        for lane in lanes:
            self._end(lane.number, status)
        self._log.pulse()

    def _propose(self, num_waiting: int) -> Sequence[Segment]:
        """Return new segments, and let go of what the searcher will not come back to."""
        if 2 * num_waiting > OPENED_AHEAD:
            return ()
        segments = self._searcher.propose(OPENED_AHEAD - num_waiting)
        dropped: Sequence[int] = self._take_dropped()
        moves = [self._log.move(number, Status.STOPPED, self._epoch_of) for number in dropped]
        self._log.recorder.write(transitions=moves)
        for number in dropped:
            self._over.add(number)
            self._states.drop(number)
            self._log.show_end(number, Status.STOPPED)
        return segments

    def _decide(self, report: Report) -> Status:
        """Return the trial's status after this report; without the metric, it has failed."""
        value = report.metrics.get(self._metric)
        if value is None:
            if self._log.tally.standings.is_empty:
                raise StudyError(explain_lack(self._metric, report))
            return Status.FAILED
        decision = self._searcher.observe(report)
        self._log.tally.see(report)
        self._states.see(report.number, value)
        if not math.isfinite(value) or decision is Decision.STOP:
            return Status.STOPPED
        if self._limits.max_epochs is not None and report.epoch >= self._limits.max_epochs:
            return Status.COMPLETED
        until = self.lanes[report.number].until
        reached = until is not None and report.epoch >= until
        return Status.PAUSED if reached or decision is Decision.PAUSE else Status.RUNNING

    def _end(self, number: int, status: Status) -> None:
        self._searcher.finish(number, status)
        if status is Status.FAILED:  # whatever it reported before
            self._states.fail(number)
        if status.is_final:
            self._over.add(number)
            self._states.drop(number)
        self._log.show_end(number, status)

    def _epoch_of(self, number: int) -> int:
        return self._epochs.get(number, 0)
