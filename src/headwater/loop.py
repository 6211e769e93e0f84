"""The loop: what the searcher proposes is trained in groups, recorded, and observed, until there is no more."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import StudyEnds, StudyError
from headwater.execute import InlineExecutor
from headwater.limits import Limits
from headwater.losses import Losses
from headwater.opening import TrialOpener
from headwater.plan import bucket_lanes
from headwater.relay import StudySite
from headwater.report import Tally
from headwater.report.standings import explain_lack
from headwater.run_end import RunEnd
from headwater.saved_states import SavedStates
from headwater.search import Dropping
from headwater.shifts import Bill, Capture, Shift
from headwater.store import Transition
from headwater.tools import Tools
from headwater.trials import (
    Decision,
    Ending,
    Lane,
    Outcome,
    Report,
    Result,
    Segment,
    Status,
    TrialGroup,
    TrialRecord,
    average_replicas,
)

if TYPE_CHECKING:
    from headwater.train.streams import Seat

OPENED_AHEAD = 1024
"""So many trials are opened at a time: enough for groups of every kind, however many the study is to have."""


class Loop:
    """Runs a study. To a trial it is the control: it takes reports and says what becomes of each lane."""

    def __init__(self, tools: Tools, limits: Limits, known: Sequence[TrialRecord] = ()) -> None:
        self._tools = tools
        self._limits = limits
        self._info = tools.recorder.info
        self._epochs = {record.number: record.epochs for record in known}
        self._lanes: dict[int, Lane] = {}
        self._waiting: deque[TrialGroup] = deque()
        self._bill = Bill()
        self._losses = Losses()
        self._states = SavedStates(tools.state_store, self._info, known)
        self._opener = TrialOpener(tools.recorder, tools.state_store, self._tell_study, self._epochs, known)
        self._tally = Tally(self._info, limits.num_trials, known)
        self.end = RunEnd(limits, self._tally, tools.recorder.lease)
        self._has_begun = any(record.history for record in known)
        self._has_more = False
        self._ended_early: str | None = None
        self._seconds_busy: float | None = None

    def run(self) -> None:
        """Search until the searcher has nothing more to propose, a limit is reached, or someone asks to stop."""
        from headwater.fuse.strategies import read_process_clock

        begin = read_process_clock()
        self._tools.recorder.add_fact("max_epochs", self._limits.max_epochs)
        for callback in self._tools.callbacks:
            callback.on_study(self._info, self._tools.recorder.store)
        self._tools.watcher.start(self._info.name, self._info.metric, self._limits.num_trials)
        self._search()
        if isinstance(self._tools.executor, InlineExecutor):  # else others were busy too
            self._seconds_busy = read_process_clock() - begin
        self._states.keep_unfinished()
        figures = {"seconds": self._tally.seconds, "lane_steps": self._tally.num_lane_steps}
        self._tools.recorder.add_fact("run", {**figures, "seconds_one_by_one": self._tally.seconds_alone})

    def _search(self) -> None:
        try:
            while self._enlist() or self._waiting:
                for group, ending in self._tools.executor.run(self._packs(), StudySite(self, self._bill)):
                    self._conclude(group, ending)
        except StudyEnds as end:
            self._ended_early = str(end)
            self._tell(self._ended_early, ())
        finally:
            self._tools.watcher.end()

    def _enlist(self) -> bool:
        """Sort what the searcher proposes into groups that wait; tell whether there is anything."""
        segments = self._propose()
        self._has_more = len(segments) >= OPENED_AHEAD
        lanes = self._open(segments) if segments else []
        self._tools.packer.assign(lanes)
        self._waiting.extend(self._tools.sorter.sort(lanes, self._tools.state_store))
        return bool(lanes)

    def _propose(self) -> Sequence[Segment]:
        """Ask the searcher what comes next, and let go of what it will not come back to."""
        segments = self._tools.searcher.propose(OPENED_AHEAD)
        dropped = self._tools.searcher.take_dropped() if isinstance(self._tools.searcher, Dropping) else ()
        self._tools.recorder.write(transitions=[self._transition(number, Status.STOPPED) for number in dropped])
        for number in dropped:
            self._tally.end(number, Status.STOPPED)
            self._states.drop(number)
            for callback in self._tools.callbacks:
                callback.on_end(number, Status.STOPPED)
        return segments

    def result(self, storage: str) -> Result:
        """Read what the record holds, and add what was measured in this run."""
        return Result(
            study=self._info.name,
            metric=self._info.metric,
            mode=self._info.mode,
            trials=average_replicas(self._tools.recorder.trials(), self._info.num_seeds),
            storage=storage,
            profiles=tuple(self._tools.sorter.profiles),
            ended_early=self._ended_early,
            was_interrupted=self._ended_early is not None and self._ended_early == self.end.stop_reason,
            num_lane_steps=self._tally.num_lane_steps,
            seconds=self._tally.seconds,
            seconds_busy=self._seconds_busy,
            seconds_one_by_one=self._tally.seconds_alone,
        )

    def hear_epochs(self, shift: Shift, num_epochs: int) -> None:
        """Learn how many epochs a group's trials will train."""
        shift.num_epochs = self._tally.num_epochs = min(num_epochs, self._limits.max_epochs or num_epochs)

    def hear_step(self, num_lanes: int) -> None:
        """Count a step of a group."""
        self.end.listen()
        self._tally.num_lane_steps += num_lanes
        self._tools.watcher.pulse(self._tally.pulse())

    def hear_reports(self, shift: Shift, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        """Record what lanes report, and decide what becomes of each; epochs that are known already are passed over."""
        self.end.listen()
        fresh = [report for report in reports if report.epoch > self._epochs.get(report.number, 0)]
        statuses = {report.number: self._decide(report) for report in fresh}
        failed = [report for report in fresh if statuses[report.number] is Status.FAILED]
        errors = {report.number: explain_lack(self._info.metric, report) for report in failed}
        fresh = [report for report in fresh if report.number not in errors]
        self._epochs |= {report.number: report.epoch for report in fresh}
        leaving = {number: status for number, status in statuses.items() if status is not Status.RUNNING}
        left = [self._transition(number, status, errors.get(number)) for number, status in leaving.items()]
        # before it is recorded that they have ended: who is killed in between would never come back to their weights
        self._states.keep_best([report for report in fresh if self._ends_with(report, statuses)], capture)
        self._tools.recorder.write(fresh, left)
        is_saved = self._tools.state_store.is_due(reports[0].epoch)
        self._states.save(reports, statuses, capture, is_due=is_saved)
        for callback in self._tools.callbacks:
            callback.on_reports(fresh)
        for number, status in leaving.items():
            self._end(number, status)
        self._tally.advance(shift.key, reports[0].epoch, len(reports) - len(leaving))
        self.end.epochs.report(shift.key, len(reports))
        num_epochs = reports[0].epoch - self._lanes[reports[0].number].start_epoch
        self.end.steps_of_trial = shift.num_steps / num_epochs * (self._tally.num_epochs or num_epochs)
        self._tools.watcher.pulse(self._tally.pulse())
        staying = [report for report in reports if report.number not in leaving]
        has_ended = reports[0].epoch == shift.num_epochs  # the function has nothing more to train
        if not has_ended and (end := self.end.find(shift.key)) is not None:
            self._states.save([] if is_saved else staying, statuses, capture, is_due=True)
            raise StudyEnds(end)
        self._part_from(shift, staying, capture)
        gone = {*leaving, *(lane.number for lane in shift.loners)}
        return [Decision.STOP if report.number in gone else Decision.CONTINUE for report in reports]

    def _ends_with(self, report: Report, statuses: dict[int, Status]) -> bool:
        """Tell whether a report is the last of its trial."""
        return statuses[report.number].is_final or report.epoch >= self._tally.num_epochs

    def _part_from(self, shift: Shift, reports: Sequence[Report], capture: Capture) -> None:
        """Let the lanes that are left of a group go on alone, where that is faster by now.

        A function that starts again forgets its own variables, so that is done only to trials which pause anyway.
        """
        is_small = 0 < len(reports) < len(shift.group)
        pauses = all(self._lanes[report.number].until is not None for report in reports)
        if not is_small or not pauses or not self._tools.sorter.prefers_apart(shift.group.lanes[0], len(reports)):
            return
        states = {report.number: capture(report.number) for report in reports}
        for number, state in states.items():
            if state is None:
                return
            self._tools.state_store.put(number, state)
        shift.loners = [replace(self._lanes[number], start_epoch=shift.epoch) for number in states]
        self._lanes |= {lane.number: lane for lane in shift.loners}

    def _decide(self, report: Report) -> Status:
        """Return the trial's status after this report; without the metric, it has failed."""
        value = report.metrics.get(self._info.metric)
        if value is None:
            if self._tally.standings.is_empty:
                raise StudyError(explain_lack(self._info.metric, report))
            return Status.FAILED
        decision = self._tools.searcher.observe(report)
        self._tally.see(report)
        self._states.see(report.number, value)
        if not math.isfinite(value):
            return Status.STOPPED
        if decision is Decision.STOP:
            return Status.STOPPED
        if self._limits.max_epochs is not None and report.epoch >= self._limits.max_epochs:
            return Status.COMPLETED
        until = self._lanes[report.number].until
        reached = until is not None and report.epoch >= until
        return Status.PAUSED if reached or decision is Decision.PAUSE else Status.RUNNING

    def _open(self, segments: Sequence[Segment]) -> list[Lane]:
        """Make lanes of segments, and say everywhere that they are about to train."""
        lanes = self._opener.open(segments)
        for lane in lanes:
            self._epochs.setdefault(lane.number, lane.start_epoch)
        self._lanes |= {lane.number: lane for lane in lanes}
        self._tally.begin(lanes)
        self._tools.recorder.write(transitions=[self._transition(lane.number, Status.RUNNING) for lane in lanes])
        for callback in self._tools.callbacks:
            callback.on_start(lanes)
        return lanes

    def _packs(self) -> Iterator[list[TrialGroup]]:
        while self._waiting or (self._has_more and self._enlist()):
            pack = self._tools.packer.take(self._waiting, self._tools.state_store)
            if self._has_begun:  # whatever the limits: one group at least comes to a report
                self.end.check_start(pack)
            self._has_begun = True
            self._take(pack)
            yield pack

    def train(self, shift: Shift, seat: Seat | None) -> Ending:
        """Call the training function for a group."""
        from headwater.train.running import run_group

        if seat is not None and self.end.steps_of_trial:  # others have reported: who has not begun need not begin
            self.end.check()
        lanes = shift.group.lanes
        self.hear_start(shift)
        states = [self._tools.state_store[lane.number] for lane in lanes] if shift.epoch else None
        workshop = self._tools.workshop if seat is None else replace(self._tools.workshop, seat=seat)
        ending = run_group(workshop, shift.group, shift, states)
        self.hear_stop(shift)
        return ending

    def hear_start(self, shift: Shift) -> None:
        """Count the lanes of a group that begins."""
        self.end.epochs.begin(shift.key)
        self._tally.advance(shift.key, shift.epoch, len(shift.group))

    def hear_stop(self, shift: Shift) -> None:
        """Count them no more."""
        self.end.epochs.end(shift.key)
        self._tally.advance(shift.key, 0, 0)

    def hear_loners(self, lanes: Sequence[Lane]) -> None:
        """Let lanes that have left a group train on alone, before anything else."""
        self._waiting.extendleft(TrialGroup(lanes=(lane,)) for lane in reversed(lanes))

    def find_mates(self, epochs: Collection[int]) -> list[TrialGroup]:
        """Return groups that can start at these epochs, as many as their pack takes in."""
        num_free = self._tools.packer.count_free(len(epochs))
        if not num_free or self.end.find() is not None:
            return []
        if not (self._has_more and self._waiting):
            self._enlist()
        mates = [group for group in self._waiting if group.lanes[0].start_epoch in epochs][:num_free]
        self._take(mates)
        return mates

    def hear_refusal(self, group: TrialGroup, reason: str) -> None:
        """Make no more packs; the group trains alone."""
        self._tools.packer.close(reason)
        lanes = self.find_saved(group.lanes)
        self._waiting.extendleft(TrialGroup(lanes=tuple(one)) for one in bucket_lanes(lanes, ()).values())

    def find_saved(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that are to run again as they go on from what was saved of them since they began."""
        states = self._tools.state_store
        found = [replace(one, start_epoch=states[one.number].epoch if one.number in states else 0) for one in lanes]
        self._lanes |= {lane.number: lane for lane in found}
        return found

    def _take(self, groups: Sequence[TrialGroup]) -> None:
        self._waiting = deque(group for group in self._waiting if not any(group is one for one in groups))

    def _conclude(self, group: TrialGroup, ending: Ending) -> None:
        """Take in how a group ended: its lanes are done, or must be sorted anew."""
        self.end.listen()
        if ending.outcome in (Outcome.DONE, Outcome.RAISED):
            self._tally.count_alone(ending.num_lane_steps, self._tools.sorter.seconds_alone(group.lanes[0]))
        if ending.outcome is Outcome.DONE:
            self._tools.sorter.acquit(ending.lanes)
            self._finish(ending.lanes, Status.COMPLETED)
        elif ending.outcome is Outcome.LOST and self._losses.note(ending.lanes, self._epochs):
            self._tell(f"trains again from what was saved: {ending.error}", ending.lanes)
            again = bucket_lanes(self.find_saved(ending.lanes), ()).values()
            self._waiting.extendleft(TrialGroup(lanes=tuple(lanes)) for lanes in again)
        elif ending.outcome in (Outcome.RAISED, Outcome.LOST) and len(ending.lanes) == 1:
            self._finish(ending.lanes, Status.FAILED, ending.error)
        else:
            ending = replace(ending, lanes=tuple(self.find_saved(ending.lanes)))
            self._waiting = deque(self._tools.sorter.sort_again(ending, self._waiting, self._tools.state_store))

    def _finish(self, lanes: Sequence[Lane], status: Status, error: str | None = None) -> None:
        self._tools.recorder.write(transitions=[self._transition(lane.number, status, error) for lane in lanes])
        for lane in lanes:
            self._end(lane.number, status)
        self._tools.watcher.pulse(self._tally.pulse())

    def _end(self, number: int, status: Status) -> None:
        self._tools.searcher.finish(number, status)
        self._tally.end(number, status)
        if status is Status.FAILED:  # whatever it reported before
            self._states.fail(number)
        if status.is_final:
            self._states.drop(number)
        for callback in self._tools.callbacks:
            callback.on_end(number, status)

    def _transition(self, number: int, status: Status, error: str | None = None) -> Transition:
        seconds = self._bill.collect(number)
        epoch = self._epochs.get(number, 0)
        return Transition(number=number, status=status, epoch=epoch, error=error, seconds=seconds)

    def _tell_study(self, text: str) -> None:
        self._tell(text, ())

    def _tell(self, text: str, lanes: Sequence[Lane]) -> None:
        self._tools.recorder.note("study", text, lanes)
        self._tools.watcher.tell(text)
