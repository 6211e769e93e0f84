"""The trials of one study: opened as its searcher proposes them, judged at their reports, recorded all along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    """What becomes of the trials of a group that has reported; it is recorded when their states are saved."""

    numbers: tuple[int, ...]
    """All that reported."""
    fresh: tuple[Report, ...]
    """What is new of their reports: a group that started again comes by known epochs once more."""
    leaving: Mapping[int, Status]
    """Those that leave the group, and how they stand."""
    errors: Mapping[int, str]
    """Why some have failed."""
    saved: tuple[int, ...]
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
        self._decided: dict[int, tuple[int, Status]] = {}

    def open_more(self, num_waiting: int) -> list[Lane]:
        """Ask the searcher what comes next where few lanes wait, and return what can train now."""
        segments = self._propose(num_waiting)
        if not segments:
            return []
        lanes = self._opener.open(segments)
        for lane in lanes:
            self._epochs.setdefault(lane.number, lane.start_epoch)
        self.lanes |= {lane.number: lane for lane in lanes}
        self._log.write_start(lanes, self.epoch_of)
        return lanes

    def reopen(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that are to run again as they go on from what was saved of them since they began."""
        reopened = self._opener.reopen(lanes)
        self.lanes |= {lane.number: lane for lane in reopened}
        return reopened

    def judge(self, reports: Sequence[Report]) -> Judgement:
        """Decide what becomes of the lanes of a group that report."""
        fresh = [report for report in reports if report.epoch > self.epoch_of(report.number)]
        statuses = {report.number: self._decide_once(report) for report in fresh}
        failed = [report for report in fresh if statuses[report.number] is Status.FAILED]
        errors = {report.number: explain_lack(self._metric, report) for report in failed}
        fresh = [report for report in fresh if report.number not in errors]
        is_due = self._states.rule.is_due(reports[0].epoch)
        ended = [one for one in fresh if statuses[one.number].is_final or one.epoch >= self.num_epochs]
        return Judgement(
            numbers=tuple(report.number for report in reports),
            fresh=tuple(fresh),
            leaving={number: status for number, status in statuses.items() if status is not Status.RUNNING},
            errors=errors,
            saved=tuple(self._states.choose_saved(reports, statuses, is_due=is_due)),
            kept=self._states.choose_kept(ended),
        )

    def commit(self, judgement: Judgement, saved: Saved | None = None) -> None:
        """Record what was reported and decided, and tell everybody; the states that go with it are there already."""
        self._epochs |= {report.number: report.epoch for report in judgement.fresh}
        moves = [
            self._log.move(number, status, self.epoch_of, judgement.errors.get(number))
            for number, status in judgement.leaving.items()
        ]
        saved = None if saved is None else self._states.leave_out_overtaken(saved)
        if saved is not None and saved.kept is not None:  # before it is recorded that its trial has ended
            self._states.files.note_kept(*saved.kept)
        self._log.recorder.write(judgement.fresh, moves)
        for number in judgement.numbers:
            self._decided.pop(number, None)
        if saved is not None:
            self._states.take_saved(saved)
        self._log.show_reports(judgement.fresh)
        for number, status in judgement.leaving.items():
            self._end(number, status)

    def finish(self, lanes: Sequence[Lane], status: Status, error: str | None = None) -> None:
        """Take in that the training function came to its end for these, or raised."""
        moves = [self._log.move(lane.number, status, self.epoch_of, error) for lane in lanes]
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
        moves = [self._log.move(number, Status.STOPPED, self.epoch_of) for number in dropped]
        self._log.recorder.write(transitions=moves)
        for number in dropped:
            self._states.drop(number)
            self._log.show_end(number, Status.STOPPED)
        return segments

    def _decide_once(self, report: Report) -> Status:
        """Decide, unless that was done for this report before: its group was lost before it was recorded."""
        epoch, status = self._decided.get(report.number, (0, Status.RUNNING))
        if epoch != report.epoch:
            status = self._decide(report)
            self._decided[report.number] = report.epoch, status
        return status

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
            self._states.drop(number)
        self._log.show_end(number, status)

    def epoch_of(self, number: int) -> int:
        """Return how many epochs of a trial are recorded."""
        return self._epochs.get(number, 0)
