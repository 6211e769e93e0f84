"""The conductor of one study: what its searcher proposes is placed on devices, heard and judged, until all is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter

from headwater.conduct.endings import Endings
from headwater.conduct.flow import open_flow
from headwater.conduct.learning import Learning
from headwater.conduct.listeners import StudyLog
from headwater.conduct.run_end import RunEnd
from headwater.conduct.running import RunningGroup, RunningPlacement, RunningPlacements
from headwater.conduct.setup import StudySetup, open_spans, open_states, open_waiting
from headwater.conduct.study_trials import StudyTrials
from headwater.conduct.tally import Tally
from headwater.conduct.waiting import Work
from headwater.conduct.wished_devices import WishedDevices
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Ended,
    Event,
    Expected,
    GroupEvent,
    Lost,
    Measured,
    Noted,
    Order,
    Outcome,
    Placement,
    Profile,
    Purpose,
    Reported,
    Result,
    Saved,
    Started,
    Starting,
    Stepped,
    TrialGroup,
)

NAME = attrgetter("name")
"""Of a device; this is asked for all that are idle after every event."""


class StudyConductor:
    """Decides for one study what trains where, and what becomes of each group at its reports."""

    def __init__(self, setup: StudySetup) -> None:
        self.ended_early: str | None = None
        """Why the run ends before its trials do; None where it does not."""
        self._setup = setup
        self._info = setup.recorder.info
        self._tally = Tally(self._info, setup.limits.num_trials, setup.known, setup.limits.deadline.clock)
        self.foresee = self._tally.foresee
        self._log = StudyLog(setup.recorder, self._tally, setup.watcher, setup.listeners)
        self._states = open_states(setup)
        self._trials = StudyTrials(setup.searcher, setup.limits, self._log, self._states, setup.known)
        self._waiting = open_waiting(setup, self._log.tell_lanes)
        self._running = RunningPlacements()
        self._spans = open_spans(setup)
        self.end = RunEnd(setup.limits, self._tally, setup.recorder.lease)
        self._endings = Endings(self._trials, self._waiting, self._log)
        self._devices: set[str] = set()
        self._most_devices = 0
        self._wished = WishedDevices(setup.recorder, self._log.tell, setup.limits.deadline.clock)
        self._flow = open_flow(setup, self._waiting.grouper, self._log.tell_devices)
        self.learning = Learning(setup, self._waiting, self._flow.surface)
        self._has_begun = any(record.history for record in setup.known)

    def begin(self) -> None:
        """Say everywhere that the run begins."""
        self._log.begin(self._setup.limits.num_trials, self._setup.limits.max_epochs, self._setup.remarks)

    def brief(self, study: str) -> Brief:
        """Return what a worker must know of the study."""
        return self._setup.brief

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        """Return what these devices are to do now."""
        names = list(map(NAME, idle))
        if not self._devices.issuperset(names):
            self._devices.update(names)
            self._most_devices = max(self._most_devices, len(self._devices))
            self._waiting.share_among(len(self._devices))
        self._waiting.add_groups(self._flow.release(names, is_running=self.is_running))
        works = self._take_works(len(names))
        widths = [len(names)] * len(works) if self._setup.spreads else self._flow.share(works, len(names))
        devices = iter(names)
        pairs = zip(works, widths, strict=True)
        placements = [self._start(work, tuple(islice(devices, width))) for work, width in pairs]
        self._flow.note_idle(devices)
        return placements

    def _take_works(self, num_devices: int) -> list[Work]:
        """Return what so many idle devices are to do."""
        works: list[Work] = []
        while num_devices > 0 and (work := self._find_work()) is not None:
            works.append(work)
            num_devices -= num_devices if self._setup.spreads else self._flow.find_width(work)
        return works

    def _start(self, work: Work, devices: tuple[str, ...]) -> Placement:
        placement = Placement(
            key=next(self._setup.keys),
            study=self._info.name,
            groups=work.groups,
            devices=devices,
            as_ranks=self._setup.brief.divides and len(devices) > 1 and work.purpose is Purpose.TRAIN,
            purpose=work.purpose,
            num_devices=len(self._devices),
            seconds_left=self._setup.limits.seconds_left,
        )
        self._running.add(placement, work)
        self._spans.begin(placement, self._setup.limits.deadline.clock())
        return placement

    def hear(self, event: Event) -> Order | None:
        """Take in what happened, and say what a group that reported is to do."""
        self.end.listen()
        order = self._hear(event)
        self._spans.hear(event, self._running.get(event.key))
        return order

    def _hear(self, event: Event) -> Order | None:
        if isinstance(event, Measured):
            self.learning.hear(self._running.remove(event.key).work, event)
        elif isinstance(event, Lost):
            self._waiting.add_groups(self._flow.lose(event.key))
            if event.key in self._running:  # else all of it had ended
                self._hear_loss(self._running.remove(event.key), event)
        elif isinstance(event, Starting):
            return self._hear_starting(self._running[event.key])
        elif isinstance(event, Noted):
            self._log.tell(event.text)
        elif isinstance(event, GroupEvent):
            running = self._running[event.key]
            return self._hear_group(running, running.groups[event.group], event)
        return None

    def _hear_group(self, running: RunningPlacement, group: RunningGroup, event: GroupEvent) -> Order | None:
        match event:
            case Started():
                return self._hear_start(running, group, event)
            case Expected():
                group.num_epochs = min(event.num_epochs, self._setup.limits.max_epochs or event.num_epochs)
                self._tally.num_epochs = self._trials.num_epochs = group.num_epochs
            case Stepped():
                self._tally.num_lane_steps += event.num_lane_steps
                self._log.pulse()
            case Reported():
                return self._hear_reports(group, event)
            case Saved():
                return self._hear_saved(running, group, event)
            case Ended():
                return self._hear_end(running, group, event)
        return None

    @property
    def is_running(self) -> bool:
        """Whether anything of it is under way."""
        return any(True for _ in self._running)

    @property
    def devices(self) -> frozenset[str]:
        """Where it trains or measures now."""
        return frozenset(name for running in self._running for name in running.placement.devices)

    @property
    def has_waiting(self) -> bool:
        """Whether lanes wait for a device."""
        return self._waiting.num_lanes > 0

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        """Return which devices are wanted: those there are, where nobody wishes others."""
        self._spans.see_devices((*pool.names, *pool.leaving), self._setup.limits.deadline.clock())
        return self._wished.choose(pool, self._running)

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Have all that trains now, or trains on one of these devices, leave at its next report and be placed anew."""
        for running in self._running:
            running.leave(devices)
        if devices is not None:
            self._devices.difference_update(devices)
            self._waiting.share_among(max(len(self._devices), 1))
            self._flow.give_up(devices)

    def finish(self) -> None:
        """Conclude a run that has come to its end."""
        self._states.keep_unfinished()
        self.learning.finish(self._most_devices)
        self._spans.end(self._setup.limits.deadline.clock())
        self._log.end()
        self._setup.recorder.flush()

    def close(self) -> None:
        """Let go of whoever watches, however the run ended."""
        self._log.close()

    def result(self, storage: str) -> Result:
        """Read what the record holds, and add what was measured in this run."""
        return replace(
            self._tally.summarise(self._setup.recorder.trials(), storage),
            profiles=tuple(self._waiting.grouper.profiles),
            device_gains=self._flow.gains,
            ended_early=self.ended_early,
            was_interrupted=self.ended_early is not None and self.ended_early == self.end.stop_reason,
        )

    @property
    def kept(self) -> tuple[int, int] | None:
        """The trial and the epoch of the weights that are kept as the best."""
        return self._states.files.kept

    def _find_work(self) -> Work | None:
        """Return what an idle device is to do; None while there is nothing, or where the run is to end."""
        if self.ended_early is not None:
            return None
        self._open_more()
        if (work := self._waiting.take(has_time=not self._setup.limits.deadline.is_over)) is None:
            return None
        # Whatever the limits: one group at least comes to a report.
        reason = self.end.find_before(work.groups) if self._has_begun else None
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
        epochs = [group.epoch for group in running.groups.values()]
        mates = self._waiting.take_mates(epochs, running.groups)
        running.add(mates)
        return Order(join=tuple(mates)) if mates else None

    def _hear_starting(self, running: RunningPlacement) -> Order | None:
        """Call off what has not begun and is to leave, or would come too late.

        The latter not where nothing has come to a report before.
        """
        if running.is_leaving:
            self._waiting.put_back(self._running.remove(running.placement.key).work)
            return Order(leave=frozenset(running.numbers))
        is_first = not self.end.epochs.are_known and not self._running.trains_beside(running)
        reason = None if is_first else self.end.find_before(running.placement.groups)
        if reason is None:
            return None
        self._waiting.put_back(self._running.remove(running.placement.key).work)
        self._end_early(reason)
        return Order(leave=frozenset(running.numbers))

    def _hear_start(self, running: RunningPlacement, group: RunningGroup, event: Started) -> Order | None:
        key = event.key, event.group
        has_company = self.end.epochs.have_begun if running.is_pack else self.end.steps_of_trial
        can_leave = has_company and not running.placement.as_ranks  # the other ranks have begun
        if can_leave and (reason := self.end.find()) is not None:
            self._end_early(reason)  # others have reported, or will: who has not begun need not begin
            return Order(leave=frozenset(group.numbers))
        self.end.epochs.begin(key)
        self._tally.advance(key, group.epoch, len(group.numbers))
        return None

    def _hear_reports(self, running: RunningGroup, event: Reported) -> Order:
        """Record what lanes report, and decide what becomes of each."""
        key, numbers = (event.key, event.group), [report.number for report in event.reports]
        self._log.charge(numbers, event.seconds)
        running.epoch = event.reports[0].epoch
        judgement = self._trials.judge(event.reports)
        if judgement.saved or judgement.kept is not None:
            running.judgement = judgement  # recorded when the states are there
        else:
            self._trials.commit(judgement)
        staying = [number for number in numbers if number not in judgement.leaving]
        self._time_epoch(running, event, len(staying))
        if not judgement.leaving and running.regrouping is None and self.end.find(key) is None:
            running.regrouping = self._flow.decide(running, self._running, self._waiting.num_lanes)
        has_ended = running.epoch == running.num_epochs  # the function has nothing more to train
        if not has_ended and (reason := self.end.find(key)) is not None:
            self._end_early(reason)
            gone = staying
        else:
            gone = self._part_from(running, staying)
        save = (*judgement.saved, *(number for number in gone if number not in judgement.saved))
        leave = frozenset([*judgement.leaving, *gone])
        running.numbers = [number for number in numbers if number not in leave]
        self._log.pulse()
        return Order(leave=leave, save=save, keep=judgement.kept)

    def _time_epoch(self, running: RunningGroup, event: Reported, num_staying: int) -> None:
        key = event.key, event.group
        self._tally.advance(key, running.epoch, num_staying)
        self.end.epochs.report(key, len(event.reports))
        self._flow.see(self._running[event.key], running, self.end.epochs.last(key))
        num_epochs = running.epoch - running.group.lanes[0].start_epoch
        self.end.steps_of_trial = event.num_steps / num_epochs * (self._tally.num_epochs or num_epochs)

    def _part_from(self, running: RunningGroup, staying: Sequence[int]) -> list[int]:
        """Let the lanes that are left of a group go on alone, where that is faster by now, or regroup them if asked to.

        A function that starts again forgets its own variables, so that is done only to trials which pause anyway.
        """
        is_small = 0 < len(staying) < len(running.group)
        lanes = [self._trials.lanes[number] for number in staying]
        is_alone = is_small and all(lane.until is not None for lane in lanes)
        is_alone = is_alone and self._waiting.grouper.prefers_apart(running.group.lanes[0], len(staying))
        if not running.num_epochs or not (is_alone or running.regrouping):  # without epochs, it would start anew
            return []
        running.loners = [replace(lane, start_epoch=running.epoch) for lane in lanes]
        return list(staying)

    def _hear_saved(self, running: RunningPlacement, group: RunningGroup, event: Saved) -> Order | None:
        if group.judgement is not None:
            self._trials.commit(group.judgement, event)
            group.judgement = None
        else:
            self._states.take_saved(event)
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
        key = event.key, event.group
        del running.groups[event.group]
        self._flow.forget(event.group)
        self.end.epochs.end(key)
        self._tally.advance(key, 0, 0)
        ending = replace(event.ending, lanes=group.select(event.numbers))
        self._log.charge(event.numbers, event.seconds)
        if ending.outcome in (Outcome.DONE, Outcome.RAISED):
            seconds = self._waiting.grouper.seconds_alone(group.group.lanes[0])
            self._tally.count_alone(ending.num_lane_steps, seconds)
        self._endings.conclude(ending, running.is_pack)
        self.learning.take(event.ways, is_new=ending.question is not None)
        order = self._find_mates(running)
        if not running.groups:
            self._running.remove(event.key)
        return order

    def _hear_loss(self, running: RunningPlacement, event: Lost) -> None:
        """Let what was lost go on from its last states; what was being measured is taken as it is without."""
        if running.work.purpose is not Purpose.TRAIN:
            profile = Profile(num_lanes=1, reason=f"measuring went no further: {event.reason}")
            finding = profile if running.work.purpose is Purpose.PROFILE else None
            self.learning.hear(running.work, Measured(key=event.key, finding=finding))
            return
        for key, group in running.groups.items():
            self.end.epochs.end((event.key, key))
            self._tally.advance((event.key, key), 0, 0)
            self._flow.forget(key)
            self._endings.lose(group.unrecorded, running.is_pack, event)

    def _end_early(self, reason: str) -> None:
        if self.ended_early is None:
            self.ended_early = reason
            self._log.tell(reason)
