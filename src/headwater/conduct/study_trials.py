"""The trials of one study: opened as its searcher proposes them, judged at their reports, recorded all along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.conduct.limits import Limits
from headwater.conduct.listeners import StudyLog
from headwater.conduct.saving import TrialStates
from headwater.conduct.standings import explain_lack
from headwater.errors import StoreError, StudyError
from headwater.search import Dropping, Searcher
from headwater.trials import Decision, Lane, Order, Report, Saved, Segment, Status, TrialRecord

COPY = "copy: "
"""Begins the key of the fact that says which trial, at which epoch, a trial is a copy of."""
OPENED_AHEAD = 1024
"""So many trials are opened at a time: enough for groups of every kind, however many the study is to have."""


NOISE = 0.1
"""Values of an epoch that differ by more than this share are of different trainings, not of different rounding."""


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

    @property
    def awaits_states(self) -> bool:
        """Whether something is to be saved before it is recorded."""
        return bool(self.saved) or self.kept is not None


class StudyTrials:
    """Knows where every trial stands, opens it from there, and decides what becomes of it.

    New trials are opened from the start or from a parent's state, known ones from their own. A trial whose state is
    missing, damaged or not the one that the record knows of starts again, and it is told.
    """

    def __init__(
        self,
        searcher: Searcher,
        limits: Limits,
        log: StudyLog,
        states: TrialStates,
        known: Sequence[TrialRecord] = (),
    ) -> None:
        self.lanes: dict[int, Lane] = {}
        """The trials that were opened, as they ride in groups."""
        self._standing: set[int] = set()
        """Those whose segments have not ended."""
        self.num_epochs = 0
        """How many epochs a trial trains, as far as its function has said so."""
        self._searcher, self._limits, self._log, self._states = searcher, limits, log, states
        self._awaits_end = False
        """Whether the searcher has nothing to propose before a segment ends."""
        self._take_dropped = searcher.take_dropped if isinstance(searcher, Dropping) else tuple
        self._recorder = recorder = log.recorder
        self._metric = recorder.info.metric
        self._epochs = {record.number: record.epochs for record in known}
        self._recorded = {record.number for record in known}
        self._under_way = {record.number for record in known if record.history}
        facts = recorder.store.facts(recorder.info.id) if known else {}
        self._copied = {key: fact for key, fact in facts.items() if key.startswith(COPY)}
        self._decided: dict[int, tuple[int, Status]] = {}
        """The epoch and the status of trials that were decided on, until that is recorded."""
        self._seconds = {record.number: record.seconds for record in known}
        self._objective = recorder.info.objective
        self._bests: dict[int, float] = {}
        self._obstacles: dict[int, str] = {}
        """Why trials that paused have no state to be continued from."""
        self._strayed: set[int] = set()
        """Trials that were noted to report other values when they are trained once more."""
        self._values = {record.number: _values_of(record.history, self._metric) for record in known}
        """The metric of each trial by epoch, to compare with when the trial is trained again."""
        self._judge([report for record in known for report in record.history])

    def open_more(self, num_waiting: int) -> list[Lane]:
        """Ask the searcher what comes next where few lanes wait, and return what can train now."""
        segments = self._propose(num_waiting)
        if not segments:
            return []
        lanes = list(map(self._open, segments))
        new = self._recorder.add([lane for lane in lanes if lane.number not in self._recorded])
        coded = {lane.number: lane for lane in new}
        lanes = [coded.get(lane.number, lane) for lane in lanes]
        for lane in lanes:
            self._recorded.add(lane.number)
            self._epochs.setdefault(lane.number, lane.start_epoch)
        self.lanes |= {lane.number: lane for lane in lanes}
        self._standing.update(lane.number for lane in lanes)
        self._log.write_start(lanes, self.epoch_of)
        return lanes

    def list_standing(self) -> list[Lane]:
        """Return the trials that are open, each from the epoch that it stands at."""
        return [replace(self.lanes[number], start_epoch=self.epoch_of(number)) for number in sorted(self._standing)]

    def reopen(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that are to run again as they go on: from their last states, or from the beginning."""
        reopened = [replace(lane, start_epoch=self._find_last(lane)) for lane in lanes]
        self.lanes |= {lane.number: lane for lane in reopened}
        return reopened

    def judge(self, reports: Sequence[Report], seconds: float = 0.0) -> Judgement:
        """Decide what becomes of the lanes of a group that report an epoch, so many seconds after the one before."""
        if self._limits.trial_timeout is not None:
            for report in reports:
                self._seconds[report.number] = self._seconds.get(report.number, 0.0) + seconds
        epoch = reports[0].epoch
        fresh = [report for report in reports if epoch > self._epochs.get(report.number, 0)]
        judged = self._judge(fresh)
        statuses = {report.number: self._decide_once(report) for report in judged}
        leaving = {number: status for number, status in statuses.items() if status is not Status.RUNNING}
        strayed = self._judge_strayed(reports)
        leaving |= dict.fromkeys(strayed, Status.FAILED)
        errors = self._explain_failed(fresh, leaving) | strayed
        if errors:
            fresh = [report for report in fresh if report.number not in errors]
            judged = [report for report in judged if report.number not in errors]
        self._log.progress.see(judged)
        self._states.see(judged)
        has_ended = 0 < self.num_epochs <= epoch  # else it is told when the function ends
        ended = [one for one in judged if has_ended or (one.number in leaving and leaving[one.number].is_final)]
        judgement = Judgement(
            numbers=tuple(report.number for report in reports),
            fresh=tuple(fresh),
            leaving=leaving,
            errors=errors,
            saved=tuple(self._states.choose_saved(reports, leaving, is_due=self._states.is_due(epoch))),
            kept=self._states.choose_kept(ended),
        )
        if judgement.awaits_states:  # until then the group can be lost, and report the same again
            self._decided |= {number: (epoch, status) for number, status in statuses.items()}
        return judgement

    def judge_end(self, reports: Sequence[Report]) -> Order:
        """Decide whose weights are kept of trials whose function has come to its end after these reports."""
        known = [one.number for one in reports if one.epoch == self.epoch_of(one.number)]
        kept = self._states.choose_ended(known)
        return Order(keep=() if kept is None else (kept,))

    def commit(self, judgement: Judgement, saved: Saved | None = None) -> None:
        """Record what was reported and decided, and tell everybody; the states that go with it are there already."""
        self._epochs |= {report.number: report.epoch for report in judgement.fresh}
        for report in judgement.fresh:
            self._values.setdefault(report.number, {}).update(_values_of([report], self._metric))
        if saved is not None:
            self._obstacles |= saved.obstacles
        moves = [
            self._log.move(number, status, self.epoch_of, judgement.errors.get(number))
            for number, status in judgement.leaving.items()
        ]
        saved = None if saved is None else self._states.leave_out_overtaken(saved)
        for number, epoch in () if saved is None else saved.kept.items():  # before its trial is recorded as ended
            self._states.files.note_kept(number, epoch)
        self._recorder.write(judgement.fresh, moves)
        if self._decided:
            for number in judgement.numbers:
                self._decided.pop(number, None)
        if saved is not None:
            self._states.take_saved(saved)
        self._log.show_reports(judgement.fresh)
        for number, status in judgement.leaving.items():
            self._end(number, status, judgement.errors.get(number))

    def finish(self, lanes: Sequence[Lane], status: Status, error: str | None = None) -> None:
        """Take in that the training function came to its end for these, or raised."""
        moves = [self._log.move(lane.number, status, self.epoch_of, error) for lane in lanes]
        self._recorder.write(transitions=moves)
        for lane in lanes:
            self._end(lane.number, status, error)

    def epoch_of(self, number: int) -> int:
        """Return how many epochs of a trial are recorded."""
        return self._epochs.get(number, 0)

    def _propose(self, num_waiting: int) -> Sequence[Segment]:
        """Return new segments, and let go of what the searcher will not come back to."""
        if self._awaits_end or 2 * num_waiting > OPENED_AHEAD:
            return ()
        segments = self._searcher.propose(OPENED_AHEAD - num_waiting)
        self._awaits_end = not segments
        dropped: Sequence[int] = self._take_dropped()
        moves = [self._log.move(number, Status.STOPPED, self.epoch_of) for number in dropped]
        self._recorder.write(transitions=moves)
        for number in dropped:
            self._states.drop(number)
            self._log.show_end(number, Status.STOPPED)
        return segments

    def _open(self, segment: Segment) -> Lane:
        info = self._recorder.info
        return Lane(
            number=segment.number,
            config=segment.config,
            seed=info.seed + segment.number % info.num_seeds,  # the study's, or one of several, by replica
            until=segment.until,
            start_epoch=self._find_start(segment),
        )

    def _find_start(self, segment: Segment) -> int:
        """Return the epoch that a trial goes on from, its parent's state being its own by then."""
        number, files = segment.number, self._states.files
        parent, since = self._find_origin(segment)
        is_expected = number in self._under_way or number in files
        self._under_way.discard(number)
        if not is_expected and parent is None:
            return 0
        try:
            if not is_expected and parent is not None:
                return self._inherit(number, parent, since)
            return files.find_epoch(number, max(self.epoch_of(number), since))
        except StoreError as error:
            files.drop(number)
            return self._start_again(number, parent, since, error)

    def _start_again(self, number: int, parent: int | None, since: int, reason: StoreError) -> int:
        """Take the parent's state once more where it is still the same, or none."""
        try:
            if parent is not None and number in self._recorded:
                return self._inherit(number, parent, since)
        except StoreError as error:
            reason = error
        self._log.tell(f"trial {number} starts again from the beginning: {reason}")
        return 0

    def _inherit(self, number: int, parent: int, since: int) -> int:
        """Give a trial the state that its parent had at the epoch of the copy, and no other."""
        if parent in self._obstacles:
            raise StudyError(
                f"trial {number} is a copy of trial {parent}, which cannot be continued from a checkpoint: "
                f"{self._obstacles[parent]}"
            )
        self._states.files.inherit(number, parent, since)
        return since

    def _find_origin(self, segment: Segment) -> tuple[int | None, int]:
        """Return which trial a segment's is a copy of, and its epoch then; recorded when it is copied."""
        key = f"{COPY}{segment.number}"
        if segment.parent is None and key not in self._copied:
            return None, 0
        if key not in self._copied:
            origin = {"parent": segment.parent, "epoch": self.epoch_of(segment.parent or 0)}
            if segment.number in self._recorded:
                origin["epoch"] = -1  # by a version that did not record it: no state is known to be the right one
            self._copied[key] = origin
            self._recorder.add_fact(key, origin)
        return self._copied[key]["parent"], self._copied[key]["epoch"]

    def _find_last(self, lane: Lane) -> int:
        """Return the epoch of a lane's last state that can be used; 0 where there is none."""
        try:
            return self._states.files.find_epoch(lane.number, max(self.epoch_of(lane.number), lane.start_epoch))
        except StoreError:
            return 0

    def _decide_once(self, report: Report) -> Status:
        """Decide, unless that was done for this report before: its group was lost before it was recorded."""
        epoch, status = self._decided.get(report.number, (0, Status.RUNNING))
        return status if epoch == report.epoch else self._decide(report)

    def _decide(self, report: Report) -> Status:
        """Return the trial's status after this report; without the metric, it has failed."""
        value = report.metrics.get(self._metric)
        if value is None:
            return Status.FAILED
        decision = self._searcher.observe(report)
        if not math.isfinite(value) or decision is Decision.STOP:
            return Status.STOPPED
        if self._limits.max_epochs is not None and report.epoch >= self._limits.max_epochs:
            return Status.COMPLETED
        if self._limits.trial_timeout is not None and self._is_overdue(report.number, self._limits.trial_timeout):
            return Status.STOPPED
        until = self.lanes[report.number].until
        reached = until is not None and report.epoch >= until
        return Status.PAUSED if reached or decision is Decision.PAUSE else Status.RUNNING

    def _explain_failed(self, reports: Sequence[Report], leaving: Mapping[int, Status]) -> dict[int, str]:
        """Return why trials have failed by what they reported; where none has ever had the metric, the study is wrong.

        Raises:
            StudyError: It is.
        """
        failed = [one for one in reports if leaving.get(one.number) is Status.FAILED] if leaving else []
        if failed and len(failed) == len(reports) and self._log.progress.standings.is_empty:
            raise StudyError(explain_lack(self._metric, failed[0]))
        return {report.number: explain_lack(self._metric, report) for report in failed}

    def _judge_strayed(self, reports: Sequence[Report]) -> dict[int, str]:
        """Compare epochs that were trained once more with the record; return the errors of trials that fail by it.

        Rounding differs between groups and machines, and training may amplify the difference, so a trial whose group
        was split or lost goes on with a note. A trial that has no checkpoint to continue from depends on its first
        epochs being the same in every call, and fails.
        """
        failed: dict[int, str] = {}
        for report in reports:
            known, now = self._values.get(report.number, {}).get(report.epoch), report.metrics.get(self._metric)
            if known is None or now is None or known == now or math.isclose(known, now, rel_tol=NOISE, abs_tol=1e-3):
                continue
            if not (math.isfinite(known) or math.isfinite(now)):
                continue
            text = (
                f"epoch {report.epoch} has {self._metric}={now:g} instead of {known:g}; let the function draw all "
                "random numbers from torch, NumPy or random, which the trial seeds, and not depend on time or on files "
                "that it writes"
            )
            if report.number in self._obstacles:
                failed[report.number] = f"the trial was trained again from its beginning, and {text}"
            elif report.number not in self._strayed:
                self._strayed.add(report.number)
                lanes = [self.lanes[report.number]] if report.number in self.lanes else []
                self._log.tell(f"trial {report.number} was trained once more, and {text}", lanes)
        return failed

    def _judge(self, reports: Sequence[Report]) -> Sequence[Report]:
        """Return reports with the values that count."""
        if self._objective.judge == "last":
            return reports
        return [self._objective.judge_report(report, self._bests) for report in reports]

    def _is_overdue(self, number: int, timeout: float) -> bool:
        """Tell whether a trial has trained for longer than it may, and say so."""
        seconds = self._seconds[number]
        if seconds > timeout:
            text = f"stopped after {seconds:.1f} s of training: a trial has {timeout:g} s (trial_timeout)"
            self._log.tell(text, [self.lanes[number]])
        return seconds > timeout

    def _end(self, number: int, status: Status, error: str | None) -> None:
        self._standing.discard(number)
        self._searcher.finish(number, status)
        self._awaits_end = False
        if status is Status.FAILED:  # whatever it reported before
            self._states.fail(number)
        if status.is_final:
            self._states.drop(number)
        self._log.show_end(number, status, error)


def _values_of(reports: Sequence[Report], metric: str) -> dict[int, float]:
    return {report.epoch: report.metrics[metric] for report in reports if metric in report.metrics}
