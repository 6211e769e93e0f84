"""The conductor of one study: what its searcher proposes is placed on devices, heard and judged, until all is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from headwater.conduct.endings import Endings
from headwater.conduct.flow import open_flow
from headwater.conduct.grouping import Work
from headwater.conduct.listeners import StudyLog
from headwater.conduct.run_devices import RunDevices
from headwater.conduct.run_end import RunEnd
from headwater.conduct.run_progress import RunProgress
from headwater.conduct.running import RunningGroup, RunningPlacement, require_idle
from headwater.conduct.setup import StudySetup, open_states, open_waiting, record_learnt
from headwater.conduct.spans import follow_trials
from headwater.conduct.study_trials import StudyTrials
from headwater.conduct.waiting import Rank, Take, WaitingLanes
from headwater.conduct.work_choice import WorkChoice
from headwater.plan.jobs import Part
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Ended,
    Event,
    Foreseen,
    GroupEvent,
    Lane,
    Learnt,
    Lost,
    Measured,
    Noted,
    Order,
    Outcome,
    Placement,
    Purpose,
    Reported,
    Result,
    Saved,
    Spent,
    Started,
    Starting,
    Stepped,
    TrialGroup,
)


class StudyConductor:
    """Decides for one study what trains where, and what becomes of each group at its reports."""

    def __init__(self, setup: StudySetup) -> None:
        self.ended_early: str | None = None
        """Why the run ends before its trials do; None where it does not."""
        self.part = Part.SEARCH
        self._setup = setup
        self._info = setup.recorder.info
        self._clock = setup.limits.deadline.clock
        self._progress = RunProgress(self._info, setup.limits.num_trials, setup.known, self._clock)
        self.foresee = self._progress.foresee
        self._log = StudyLog(setup.recorder, self._progress, setup.watcher, setup.listeners)
        self._states = open_states(setup)
        self._trials = StudyTrials(setup.searcher, setup.limits, self._log, self._states, setup.known)
        self._waiting = open_waiting(setup, self._log.tell_lanes)
        self._running: dict[int, RunningPlacement] = {}
        self.end = RunEnd(setup.limits, self._progress, setup.recorder.lease)
        self._endings = Endings(self._trials, self._waiting, self._log)
        self._devices = RunDevices(setup, self._log.tell)
        self._flow = open_flow(setup, self._waiting.grouper, self._log.tell_devices, self._devices.kinds)
        self.order_devices, self.close = self._flow.kinds.order, self._log.close
        self.write_spans = setup.recorder.flush
        self._choice = WorkChoice(
            self._find_work, self._waiting, self._flow, self._devices, self._log.tell_devices, spreads=setup.spreads
        )
        self._record_learnt = partial(record_learnt, setup, self._waiting.grouper, self._flow.surface)
        self._has_begun = any(record.history for record in setup.known)

    def begin(self) -> None:
        """Say everywhere that the run begins."""
        self._log.begin(self._setup.limits.num_trials, self._setup.limits.max_epochs, self._setup.remarks)

    @property
    def name(self) -> str:
        """What the record calls the study."""
        return self._info.name

    def list_lanes(self) -> list[Lane]:
        """Return the lanes that wait or train, each from the epoch that it stands at."""
        if self.ended_early is None and not self._trials.list_standing():
            self._open_more()
        return self._trials.list_standing()

    def is_to_end(self) -> bool:
        """Tell whether the run is to end now, without a device."""
        self.end.listen()
        return self.end.find() is not None

    def brief(self, study: str) -> Brief:
        """Return what a worker must know of the study."""
        return self._setup.brief

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        """Return what these devices are to do now."""
        self.see_devices(idle)
        return [self._start(work, devices) for work, devices in self._choice.choose(self._running.values())]

    def see_devices(self, idle: Sequence[Device]) -> None:
        """Take in which devices are idle."""
        if self._devices.see_idle(idle):
            self._waiting.share_among(self._devices.num_sharing)

    def place_beside(self, lane: Lane, devices: tuple[str, ...], most_lanes: int) -> Placement | None:
        """Return lanes that train as one with this one of another study, so many at most; None: there are none."""
        work = self._find_work(take=partial(self._waiting.take_like, lane, most_lanes))
        return self._start(work, devices) if work else None

    def _start(self, work: Work, devices: tuple[str, ...]) -> Placement:
        placement = Placement(
            key=next(self._setup.keys),
            study=self._info.name,
            groups=work.groups,
            devices=devices,
            as_ranks=self._setup.brief.divides and len(devices) > 1 and work.purpose is Purpose.TRAIN,
            purpose=work.purpose,
            num_devices=len(self._devices.names),
            seconds_left=self.end.seconds_left,
        )
        require_idle(placement, self.devices)
        running = RunningPlacement.start(placement, work, self._clock(), is_lent=devices[0] in self._devices.lent)
        self._running[placement.key] = running
        self._log.show_phase(work.purpose)
        return placement

    def hear(self, event: Event) -> Order | None:
        """Take in what happened, and say what a group that reported is to do."""
        self.end.listen()
        running = self._running.get(event.key)
        order = self._hear(event)
        if isinstance(event, Stepped | Reported | Saved | Ended | Lost):
            self._log.pulse(event.time_s)
        if running is not None:  # else it is over, and whatever ran it was lost since
            for span in follow_trials(running, event, self._setup.origin_s, is_over=event.key not in self._running):
                self._setup.recorder.add_span(span)
        return order

    def _hear(self, event: Event) -> Order | None:
        if isinstance(event, GroupEvent):
            running = self._running[event.key]
            return self._hear_group(running, running.groups[event.group], event)
        if isinstance(event, Measured):
            self._waiting.take_finding(self._running.pop(event.key).work, event)
            self._record_learnt(event.ways, is_new=True)
        elif isinstance(event, Lost):
            self._waiting.add_groups(self._flow.lose(event.key))
            if event.key in self._running:  # else all of it had ended
                self._hear_loss(self._running.pop(event.key), event)
        elif isinstance(event, Starting):
            return self._hear_starting(self._running[event.key])
        elif isinstance(event, Foreseen | Noted | Spent):
            self._log.hear(event)
        return None

    def _hear_group(self, running: RunningPlacement, group: RunningGroup, event: GroupEvent) -> Order | None:
        match event:
            case Started():
                return self._hear_start(running, group, event)
            case Stepped():
                self._hear_steps(group, event)
                self._endings.finish(group, event.done)
            case Reported(is_over=True):
                return self._trials.judge_end(event.reports)
            case Reported():
                self._hear_steps(group, event)
                return self._hear_reports(group, event)
            case Saved():
                return self._hear_saved(running, group, event)
            case Ended():
                return self._hear_end(running, group, event)
        return None

    @property
    def is_running(self) -> bool:
        """Whether anything of it is under way."""
        return bool(self._running)

    @property
    def is_measuring(self) -> bool:
        """Whether nothing of it trains, and something is measured."""
        return self.is_running and all(running.work.purpose is not Purpose.TRAIN for running in self._running.values())

    @property
    def devices(self) -> frozenset[str]:
        """Where it trains or measures now."""
        return frozenset(name for running in self._running.values() for name in running.placement.devices)

    @property
    def waiting(self) -> WaitingLanes:
        """The lanes that wait for a device."""
        return self._waiting

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        """Return which devices are wanted: those there are, where nobody wishes others."""
        return self._devices.choose(pool, self._running.values())

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Have all that trains now, or trains on one of these devices, leave at its next report and be placed anew."""
        for running in self._running.values():
            running.leave(devices)
        if devices is not None:
            self._devices.remove(devices)
            self._waiting.share_among(self._devices.num_sharing)
            self._flow.give_up(devices)

    def finish(self) -> None:
        """Conclude a run that has come to its end."""
        reason = self.end.find() if self._trials.list_standing() else None
        if reason is not None:  # of a run that was left without a device
            self._end_early(reason)
        self._states.keep_unfinished()
        self._record_learnt(is_new=bool(self._flow.surface.epochs))
        self._devices.end()
        self._log.end(self.ended_early)
        self._setup.recorder.flush()

    def result(self, storage: str) -> Result:
        """Read what the record holds, and add what was measured in this run."""
        return replace(
            self._progress.summarise(self._setup.recorder.trials(), storage),
            profiles=tuple(self._waiting.grouper.profiles),
            device_gains=self._flow.gains,
            ended_early=self.ended_early,
            is_over=self.ended_early is None,
            was_interrupted=self.ended_early is not None and self.ended_early == self.end.stop_reason,
        )

    @property
    def kept(self) -> tuple[int, int] | None:
        """The trial and the epoch of the weights that are kept as the best."""
        return self._states.files.kept

    def _find_work(self, rank: Rank | None = None, *, take: Take = None) -> Work | None:
        """Return what an idle device is to do; None while there is nothing, or where the run is to end."""
        if self.ended_early is not None:
            return None
        self._open_more()
        has_time = not self._setup.limits.deadline.is_over
        take = take or partial(self._waiting.take, rank, has_time=has_time)
        if (work := take()) is None:
            return None
        reason = self.end.find_before(work.groups) if self._has_begun else self.end.stop_reason  # one must report
        if reason is not None:
            self._waiting.put_back(work)
            self._end_early(reason)
            return None
        self._has_begun |= work.purpose is Purpose.TRAIN
        return work

    def _open_more(self) -> None:
        lanes = self._trials.open_more(self._waiting.num_lanes)
        self._waiting.packer.assign(lanes)
        self._waiting.add(lanes)

    def _find_mates(self, running: RunningPlacement) -> Order | None:
        """Return groups that join a pack in which one has reported or ended: they can start where some of it stand."""
        if not running.is_pack or running.is_leaving or self.ended_early is not None or self.end.find() is not None:
            return None
        self._open_more()
        mates = self._waiting.take_mates([group.epoch for group in running.groups.values()], running.groups)
        running.add(mates)
        return Order(join=tuple(mates)) if mates else None

    def _hear_starting(self, running: RunningPlacement) -> Order | None:
        """Call off what has not begun and is to leave, or would come too late where others have come to a report."""
        self._log.show_phase(running.work.purpose, is_starting=True)
        others = [one for one in self._running.values() if one is not running]
        is_first = not self.end.knows_epochs and all(one.work.purpose is not Purpose.TRAIN for one in others)
        reason = None if running.is_leaving or is_first else self.end.find_before(running.placement.groups)
        if reason is not None:
            self._end_early(reason)
        elif not running.is_leaving:
            return None
        self._waiting.put_back(self._running.pop(running.placement.key).work)
        return Order(leave=frozenset(running.numbers))

    def _hear_start(self, running: RunningPlacement, group: RunningGroup, event: Started) -> Order | None:
        self._log.show_phase(Purpose.TRAIN)
        has_begun = self.end.knows_epochs or any(one.has_begun for one in self._running.values())
        has_company = has_begun if running.is_pack else self.end.steps_of_trial
        can_leave = has_company and not running.placement.as_ranks  # the other ranks have begun
        if can_leave and (reason := self.end.find()) is not None:
            self._end_early(reason)  # others have reported, or will: who has not begun need not begin
            return Order(leave=frozenset(group.numbers))
        group.since_s = self._clock()
        self._progress.advance((event.key, event.group), group.epoch, len(group.numbers))
        return None

    def _hear_steps(self, running: RunningGroup, event: Stepped | Reported) -> None:
        self._progress.num_lane_steps += event.num_lane_steps
        if event.num_epochs:
            running.num_epochs = min(event.num_epochs, self._setup.limits.max_epochs or event.num_epochs)
            self._progress.num_epochs = self._trials.num_epochs = running.num_epochs

    def _hear_reports(self, running: RunningGroup, event: Reported) -> Order:
        """Record what lanes report, and decide what becomes of each."""
        numbers = [report.number for report in event.reports]
        self._log.charge(numbers, event.seconds)
        running.epoch = event.reports[0].epoch
        judgement = self._trials.judge(event.reports, event.seconds)
        if judgement.awaits_states:
            running.judgement = judgement  # recorded when the states are there
        else:
            self._trials.commit(judgement)
        staying = [number for number in numbers if number not in judgement.leaving] if judgement.leaving else numbers
        self._time_epoch(running, event, len(staying))
        if not judgement.leaving and running.regrouping is None and self.end.find(running) is None:
            running.regrouping = self._choice.decide(self._running[event.key], running, self._running.values())
        has_ended = running.epoch == running.num_epochs  # the function has nothing more to train
        if not has_ended and (reason := self.end.find(running)) is not None:
            self._end_early(reason)
            gone = staying
        else:
            gone = self._part_from(running, staying)
        save = (*judgement.saved, *(number for number in gone if number not in judgement.saved))
        leave = frozenset([*judgement.leaving, *gone])
        running.numbers = [number for number in numbers if number not in leave] if leave else numbers
        self._flow.note_stand(self._running[event.key], running)
        return Order(leave=leave, save=save, keep=() if judgement.kept is None else (judgement.kept,))

    def _time_epoch(self, running: RunningGroup, event: Reported, num_staying: int) -> None:
        self._progress.advance((event.key, event.group), running.epoch, num_staying)
        running.time_epoch(self._clock())
        self.end.see_epoch(len(event.reports), running.epoch_s)
        self._choice.see(self._running[event.key], running, len(event.reports))
        num_epochs = running.epoch - running.group.lanes[0].start_epoch
        self.end.steps_of_trial = event.num_steps / num_epochs * (self._progress.num_epochs or num_epochs)

    def _part_from(self, running: RunningGroup, staying: Sequence[int]) -> list[int]:
        """Let the lanes that are left of a group go on alone, where that is faster by now, or regroup them if asked to.

        A function that starts again forgets its own variables, so that is done only to trials which pause anyway.
        """
        if not running.num_epochs or (running.regrouping is None and not 0 < len(staying) < len(running.group)):
            return []  # without epochs, it would start anew
        lanes = [self._trials.lanes[number] for number in staying]
        if running.regrouping is None and not self._waiting.grouper.prefers_apart(lanes):
            return []
        running.loners = [replace(lane, start_epoch=running.epoch) for lane in lanes]
        return list(staying)

    def _hear_saved(self, running: RunningPlacement, group: RunningGroup, event: Saved) -> Order | None:
        group.saved_s += event.seconds
        if group.judgement is not None:
            self._trials.commit(group.judgement, event)
            group.judgement = None
        else:
            self._states.take_saved(self._states.leave_out_overtaken(event))
        loners, group.loners = self._trials.reopen(group.loners), []
        if group.regrouping is None:
            self._waiting.add_groups([TrialGroup(lanes=(lane,)) for lane in loners])
        elif group.regrouping.num_parts is None:
            self._waiting.add(loners)
        elif loners:
            self._flow.hold(running.placement, group.group.key, loners, group.regrouping)
        return self._find_mates(running)

    def _hear_end(self, running: RunningPlacement, group: RunningGroup, event: Ended) -> Order | None:
        """Take in how a group ended: its lanes are done, or must be cut otherwise."""
        del running.groups[event.group]
        self._flow.forget(event.key, event.group)
        self._progress.advance((event.key, event.group), 0, 0)
        ending = replace(event.ending, lanes=group.select(event.numbers))
        self._log.charge(event.numbers, event.seconds)
        if ending.outcome in (Outcome.DONE, Outcome.RAISED):
            self._progress.count_alone(ending.num_lane_steps, self._waiting.grouper.seconds_alone(group.group.lanes[0]))
        self._endings.conclude(ending, running.is_pack)
        self._record_learnt(event.ways, is_new=ending.question is not None)
        order = self._find_mates(running)
        if not running.groups:
            self._running.pop(event.key)
        return order

    def _hear_loss(self, running: RunningPlacement, event: Lost) -> None:
        """Let what was lost go on from its last states; what was being measured is taken as it is without."""
        if running.work.purpose is not Purpose.TRAIN:
            self._waiting.lose_finding(running.work, event)
            self._record_learnt(is_new=True)
            return
        for key, group in running.groups.items():
            self._progress.advance((event.key, key), 0, 0)
            self._flow.forget(event.key, key)
            self._endings.lose(group.unrecorded, running.is_pack, event)

    @property
    def learnt(self) -> Learnt:
        """What is known of the function by now."""
        return self._flow.surface.hand_on(self._waiting.grouper.learnt)

    def _end_early(self, reason: str) -> None:
        if self.ended_early is None:
            self.ended_early = reason
            self._log.tell(reason)
