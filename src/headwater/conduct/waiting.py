"""Lanes that wait for a device, and what a device that is idle is to do with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from headwater.conduct.grouping import Grouper, Work
from headwater.conduct.packing import Packer
from headwater.plan.grouping import Key
from headwater.trials import (
    Ending,
    Lane,
    Learnt,
    LoadingCost,
    Lost,
    Measured,
    Measurement,
    Profile,
    Purpose,
    TrialGroup,
)

__all__ = ["Rank", "Take", "WaitingLanes", "Work"]

Rank: TypeAlias = Callable[[TrialGroup], int]
"""How much a group is worth to a device."""
Take: TypeAlias = Callable[[], Work | None] | None
"""Takes something of what waits; None: what is first."""


class WaitingLanes:
    """Sorts lanes that wait into groups, as far as enough is known of them, and hands out work.

    Groups that were cut on purpose (halves, to find out who failed; lanes that are better off alone) stay as they are.
    All others are cut anew whenever lanes come or something is learnt, so that those that wait longer meet more mates.
    """

    def __init__(self, grouper: Grouper, packer: Packer) -> None:
        self.grouper = grouper
        self.packer = packer
        self._lanes: list[Lane] = []
        self._unknown: list[Work] = []
        self._groups: deque[TrialGroup] = deque()
        self._fixed: deque[TrialGroup] = deque()
        self._num_grouped = 0
        self._measuring: set[Key] = set()
        self._is_measuring_cost = False
        self._is_stale = False
        self._num_devices = 1
        self.rank: Callable[[TrialGroup], float] | None = None
        """What says which group is first for the devices at hand, the one with the least; None: the first in line."""

    @property
    def num_lanes(self) -> int:
        """How many lanes wait."""
        return len(self._lanes) + self._num_grouped

    def list_groups(self) -> list[TrialGroup]:
        """Return the groups that could be taken now."""
        self._arrange()
        return [*self._fixed, *self._groups]

    def share_among(self, num_devices: int) -> None:
        """Have lanes shared out among so many devices."""
        self.grouper.share_among(num_devices)
        self._num_devices = num_devices
        self._is_stale = True

    def add(self, lanes: Sequence[Lane]) -> None:
        """Let lanes wait."""
        self._lanes += lanes
        self._is_stale |= bool(lanes)

    def add_groups(self, groups: Sequence[TrialGroup]) -> None:
        """Let groups wait that are to stay as they are; they come first."""
        self._fixed.extendleft(reversed(groups))
        self._num_grouped += sum(len(group) for group in groups)

    def take(self, rank: Rank | None = None, *, has_time: bool = True, can_measure: bool = True) -> Work | None:
        """Return what an idle device is to do; None while there is nothing.

        With `rank`, that is the first of the groups with the highest rank; packs have their own order. Where there is
        no time, only what trials wait for is measured, and not what loading costs.
        """
        self._arrange()
        for work in self._unknown if can_measure else ():
            if work.kind is not None and work.kind not in self._measuring:
                self._measuring.add(work.kind)
                return work
        waiting = [*self._fixed, *self._groups]
        if not waiting:
            return None
        self.packer.rule_out(waiting, self.grouper.find_loading_share)
        if not self.packer.may_pack:
            first = self._take_first() if rank is None else max((*self._fixed, *self._groups), key=rank)
            if rank is not None:
                self._remove([first])
            return Work(purpose=Purpose.TRAIN, groups=(first,))
        has_time = has_time and can_measure and len(waiting) > self._num_devices  # else each has a device of its own
        if has_time and not self._is_measuring_cost and self.packer.wants_cost(waiting):
            self._is_measuring_cost = True
            return Work(purpose=Purpose.LOADING, groups=(waiting[0],))
        pack = self.packer.take(waiting)
        self._remove(pack)
        return Work(purpose=Purpose.TRAIN, groups=tuple(pack))

    def _take_first(self) -> TrialGroup:
        line = self._fixed or self._groups
        place = 0
        if self.rank is not None:
            ranks = [self.rank(group) for group in line]
            place = ranks.index(min(ranks))
        first = line[place]
        del line[place]
        self._num_grouped -= len(first)
        return first

    def take_mates(self, epochs: Collection[int], taken: Collection[int]) -> list[TrialGroup]:
        """Return groups that can start at one of these epochs, as many as a pack of so many takes in.

        Those whose keys are taken there must wait.
        """
        num_free = self.packer.count_free(len(epochs))
        if not num_free:
            return []
        self._arrange()
        waiting = [*self._fixed, *self._groups]
        mates = [group for group in waiting if group.lanes[0].start_epoch in epochs and group.key not in taken][
            :num_free
        ]
        self._remove(mates)
        return mates

    def adopt(self, learnt: Learnt) -> None:
        """Take over what another study of the same function has learnt."""
        self._is_stale |= self.grouper.adopt(learnt)

    def list_like(self, lane: Lane) -> list[Lane]:
        """Return the lanes that wait and could share a group with this one, of this study or another."""
        self._arrange()
        waiting = [*(one for group in self._groups for one in group.lanes), *self._lanes]
        return [one for one in waiting if self._are_alike(one, lane)]

    def take_like(self, lane: Lane, most_lanes: int) -> Work | None:
        """Return lanes that can train in one group with this one of another study, so many at most; None: none can."""
        self._arrange()
        waiting = [one for group in self._groups for one in group.lanes]
        alike = [one for one in waiting if self._are_alike(one, lane)][:most_lanes]
        if not alike:
            return None
        chosen = {one.number for one in alike}
        cut = [group for group in self._groups if not chosen.isdisjoint(group.numbers)]
        self._remove(cut)
        self.add([one for group in cut for one in group.lanes if one.number not in chosen])
        return Work(purpose=Purpose.TRAIN, groups=(TrialGroup(lanes=tuple(alike)),))

    def _are_alike(self, one: Lane, other: Lane) -> bool:
        starts = (one.seed, one.start_epoch), (other.seed, other.start_epoch)
        return starts[0] == starts[1] and self.grouper.kind_of(one) == self.grouper.kind_of(other)

    def put_back(self, work: Work) -> None:
        """Let work wait again that could not be done; what was to be measured is measured again."""
        if work.kind is not None:
            self._measuring.discard(work.kind)
        elif work.purpose is Purpose.LOADING:
            self._is_measuring_cost = False
        elif work.purpose is Purpose.TRAIN:
            self.add_groups(work.groups)

    def take_finding(self, work: Work, event: Measured) -> None:
        """Learn from what was measured."""
        finding, ending = event.finding, event.ending
        if work.kind is None:
            assert isinstance(finding, LoadingCost | None)
            self._is_measuring_cost = False
            self.packer.take_cost(work.groups[0], finding)
            return
        self._measuring.discard(work.kind)
        self._is_stale = True
        if work.purpose is Purpose.ALONE:
            assert isinstance(finding, Measurement | None)
            self.grouper.take_alone(work, finding)
        else:
            assert isinstance(finding, Profile)
            lanes = tuple(lane for lane in work.groups[0].lanes if lane.number in event.numbers)
            self.grouper.take_profile(work, finding, None if ending is None else replace(ending, lanes=lanes))

    def lose_finding(self, work: Work, event: Lost) -> None:
        """Take what was being measured, by somebody who is gone, as it is without."""
        profile = Profile(num_lanes=1, reason=f"measuring went no further: {event.reason}", is_cut=True)
        finding = profile if work.purpose is Purpose.PROFILE else None
        self.take_finding(work, Measured(key=event.key, finding=finding))

    def part(self, ending: Ending) -> None:
        """Let the lanes of a group wait that could not run to its end as one, cut otherwise."""
        groups = self.grouper.part(ending)
        self.add_groups(groups)
        if not groups:
            self._groups.appendleft(TrialGroup(lanes=ending.lanes))  # they are first when all are cut anew
            self._num_grouped += len(ending.lanes)
        self._is_stale = True

    def refuse_packs(self, groups: Sequence[TrialGroup], reason: str) -> None:
        """Make no more packs; these groups train alone."""
        self.packer.close(reason)
        self.add_groups(groups)
        self._is_stale = True

    def _arrange(self) -> None:
        """Sort all lanes anew, where there is a reason to."""
        if not self._is_stale:
            return
        lanes = [*(lane for group in self._groups for lane in group.lanes), *self._lanes]
        groups, self._unknown = self.grouper.sort(lanes)
        self._groups = deque(groups)
        self._lanes = [lane for work in self._unknown for lane in work.waiting]
        self._num_grouped = sum(len(group) for group in (*self._groups, *self._fixed))
        self._is_stale = False

    def _remove(self, groups: Sequence[TrialGroup]) -> None:
        self._num_grouped -= sum(len(group) for group in groups)
        first = self._fixed or self._groups
        if len(groups) == 1 and groups[0] is first[0]:
            first.popleft()
            return
        chosen = {id(group) for group in groups}
        self._fixed = deque(group for group in self._fixed if id(group) not in chosen)
        self._groups = deque(group for group in self._groups if id(group) not in chosen)
