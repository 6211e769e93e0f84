"""Which idle device does what, where some are the study's own and others are lent by a pipeline.

Its own devices go first. Where trials train one by one, they go to what was trained furthest: of a search that stops
trials early, those are the best so far. What has only begun trains where devices are lent, as many lanes as the memory
takes that is left there, unless the study's own devices have it done sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from headwater.conduct.flow import Flow
from headwater.conduct.grouping import Tell, Work
from headwater.conduct.lent_pace import LentPace
from headwater.conduct.run_devices import RunDevices
from headwater.conduct.running import Regrouping, RunningGroup, RunningPlacement, RunningPlacements
from headwater.conduct.waiting import Rank, Take, WaitingLanes
from headwater.errors import StudyError
from headwater.plan.bubbles import explain_refusal, fit_lanes
from headwater.trials import Device, Purpose, TrialGroup

MOST_TRIED = 8
"""So many works that do not fit are looked at before lent devices stay idle."""


class FindWork(Protocol):
    """Returns what an idle device is to do; None while there is nothing."""

    def __call__(self, rank: Rank | None = None, *, take: Take = None) -> Work | None:
        """Take the first of the groups with the highest rank, or what is taken instead."""


class WorkChoice:
    """Gives work to idle devices, and has trials that are worth it move to the study's own."""

    def __init__(
        self, find_work: FindWork, waiting: WaitingLanes, flow: Flow, devices: RunDevices, tell: Tell, *, spreads: bool
    ) -> None:
        self._find_work = find_work
        self._tell = tell
        self._waiting = waiting
        self._flow = flow
        self._devices = devices
        self._spreads = spreads
        self._pace = LentPace()
        self._is_grouped = False
        self._promised: dict[int, str] = {}
        """By placement: the device of the study's own that its group leaves for."""

    def see(self, placement: RunningPlacement, running: RunningGroup, num_lanes: int) -> None:
        """Learn from an epoch of so many lanes that was trained."""
        self._pace.see(placement, running, num_lanes)
        self._flow.see(placement, running)

    def choose(self, running: RunningPlacements) -> list[tuple[Work, tuple[str, ...]]]:
        """Return what the idle devices are to do now, where these placements run.

        Raises:
            StudyError: Nothing runs, and what waits fits on no device.
        """
        is_running = bool(running)
        own, lent = self._devices.split_idle()
        names = self._devices.idle
        self._waiting.add_groups(self._flow.release(names, is_running=is_running))
        chosen = self._choose_own(own, self._find_own_rank())
        unfit: list[Work] = []
        num_lent = sum(one.is_lent for one in running)
        for device in lent:
            work = self._find_fitting(device, unfit, partial(self._take_paying, running, num_lent))
            chosen += [] if work is None else [(work, (device.name,))]
            num_lent += work is not None
        for work in reversed(unfit):
            self._waiting.put_back(work)
        if unfit and not chosen and not is_running and not self._devices.has_own:
            raise StudyError(self._explain(unfit[0]))
        return chosen

    def decide(
        self, placement: RunningPlacement, running: RunningGroup, others: RunningPlacements
    ) -> Regrouping | None:
        """Return how a group that has reported, and could go on, is placed anew; None: it goes on."""
        if not placement.is_lent:
            return self._flow.decide(placement, running, self._waiting.num_lanes)
        if placement.is_pack or not running.num_epochs:
            return None
        keys = {one.placement.key for one in others}
        self._promised = {key: name for key, name in self._promised.items() if key in keys}
        idle = [name for name in self._flow.idle if name not in self._promised.values()]
        name = idle[0] if idle else self._call_back(running, others)
        if name is None:
            return None
        self._promised[placement.placement.key] = name
        self._tell_move(running, name)
        return Regrouping(num_parts=1, device=name)

    def _find_own_rank(self) -> Rank | None:
        is_by_merit = bool(self._devices.lent) and not self._trains_as_one(self._waiting.list_groups())
        return find_merit if is_by_merit else None

    def _trains_as_one(self, waiting: Sequence[TrialGroup]) -> bool:
        """Tell whether what waits may train in groups: these fill while they wait in line, which saves more time."""
        if waiting:  # else more may be opened, of what was there before
            self._is_grouped = self._waiting.grouper.count_most(waiting[0].lanes[0]) > 1
        return self._is_grouped

    def _choose_own(self, names: Sequence[str], rank: Rank | None) -> list[tuple[Work, tuple[str, ...]]]:
        works: list[Work] = []
        num_left = len(names)
        self._waiting.rank = self._flow.find_rank(names)
        while num_left > 0 and (work := self._find_work(rank)) is not None:
            works.append(work)
            num_left -= num_left if self._spreads else self._flow.find_width(work)
        if not works:
            self._flow.idle = names
            return []
        return list(zip(works, self._flow.seat(works, names, spreads=self._spreads), strict=True))

    def _find_fitting(self, device: Device, unfit: list[Work], take_paying: Take) -> Work | None:
        """Return what a device that is lent is to do; what does not fit there is left to others."""
        take = take_paying if self._devices.has_own else None
        while len(unfit) < MOST_TRIED and (work := self._find_work(_find_newness, take=take)) is not None:
            fitting = self._fit(work, device)
            if fitting is not None:
                return fitting
            unfit.append(work)
        return None

    def _take_paying(self, running: RunningPlacements, num_lent: int) -> Work | None:
        """Take what has only begun, unless the study's own devices have it done sooner; they measure, too."""
        waiting = self._waiting.list_groups()
        num_own = len(self._devices.names - self._devices.lent.keys())
        if waiting and num_own > 0 and self._trains_as_one(waiting):
            is_tried = num_lent > 0 and not self._pace.is_known  # one is enough to learn how slow they are
            if is_tried or not self._pace.pays(max(waiting, key=_find_newness), waiting, running, num_own):
                return None
        return self._waiting.take(_find_newness, can_measure=False)

    def _fit(self, work: Work, device: Device) -> Work | None:
        """Return the part of a work that fits into what is left of a device's memory; the rest waits."""
        if work.purpose is not Purpose.TRAIN or device.memory_bytes is None:
            return work
        group, *others = work.groups
        num_lanes = fit_lanes(self._waiting.grouper.measurements_of(group.lanes[0]), device.memory_bytes)
        if num_lanes < 1:
            return None
        size = int(min(num_lanes, len(group)))
        rest = [TrialGroup(lanes=group.lanes[size:])] if size < len(group) else []
        self._waiting.add_groups([*rest, *others])
        return replace(work, groups=(TrialGroup(lanes=group.lanes[:size]),))

    def _call_back(self, running: RunningGroup, others: RunningPlacements) -> str | None:
        """Have the least trained group on a device of the study's own leave it to one that was trained further."""
        worse = [
            (find_merit(group.group), other.placement.devices[0], group)
            for other in others
            if not other.is_lent and not other.is_pack and other.placement.purpose is Purpose.TRAIN
            for group in other.groups.values()
            if group.regrouping is None and group.num_epochs and find_merit(group.group) < find_merit(running.group)
        ]
        if not worse:
            return None
        _, name, group = min(worse, key=lambda one: one[:2])
        group.regrouping = Regrouping()
        return name

    def _explain(self, work: Work) -> str:
        """Say what does not fit."""
        measured = self._waiting.grouper.measurements_of(work.groups[0].lanes[0])
        needed = min((item.peak_bytes or 0 for item in measured if item.num_lanes == 1), default=0)
        return explain_refusal(needed, [device.memory_bytes or 0 for device in self._devices.lent.values()])

    def _tell_move(self, running: RunningGroup, name: str) -> None:
        self._tell(f"after epoch {running.epoch}: on to {name}, from a device that is lent", running.lanes)


def find_merit(group: TrialGroup) -> int:
    """Return to which epoch trials go on that have come through a comparison; 0 for those that have only begun."""
    lane = group.lanes[0]
    return (lane.until or 0) if lane.start_epoch else 0


def _find_newness(group: TrialGroup) -> int:
    return -find_merit(group)
