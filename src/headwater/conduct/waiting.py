"""Lanes that wait for a device, and what a device that is idle is to do with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headwater.conduct.grouping import Grouper, Unsized
from headwater.conduct.packing import Packer
from headwater.plan.grouping import Key
from headwater.trials import Ending, Lane, LoadingCost, Measurement, Profile, Purpose, TrialGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a device is to do: train groups, or measure lanes."""

    purpose: Purpose
    groups: tuple[TrialGroup, ...]
    wanted: Unsized | None = None
    """The lanes that wait for what is measured."""


class WaitingLanes:
    """Sorts lanes that wait into groups, as far as enough is known of them, and hands out work.

    Groups that were cut on purpose (halves, to find out who failed; lanes that are better off alone) stay as they are.
    All others are cut anew whenever lanes come or something is learnt, so that those that wait longer meet more mates.
    """

    def __init__(self, grouper: Grouper, packer: Packer) -> None:
        self.grouper = grouper
        self.packer = packer
        self._lanes: list[Lane] = []
        self._unsized: list[Unsized] = []
        self._groups: deque[TrialGroup] = deque()
        self._fixed: deque[TrialGroup] = deque()
        self._num_grouped = 0
        self._measuring: set[Key] = set()
        self._is_measuring_cost = False
        self._is_stale = False

    @property
    def num_lanes(self) -> int:
        """How many lanes wait."""
        return len(self._lanes) + self._num_grouped

    def share_among(self, num_devices: int) -> None:
        """Have lanes shared out among so many devices."""
        self.grouper.share_among(num_devices)
        self._is_stale = True

    def add(self, lanes: Sequence[Lane]) -> None:
        """Let lanes wait."""
        self._lanes += lanes
        self._is_stale |= bool(lanes)

    def add_groups(self, groups: Sequence[TrialGroup]) -> None:
        """Let groups wait that are to stay as they are; they come first."""
        self._fixed.extendleft(reversed(groups))
        self._num_grouped += sum(len(group) for group in groups)

    def take(self, *, has_time: bool = True) -> Work | None:
        """Return what an idle device is to do; None while there is nothing.

        Where there is no time, only what trials wait for is measured, and not what loading costs.
        """
        self._arrange()
        for wanted in self._unsized:
            if wanted.kind not in self._measuring:
                self._measuring.add(wanted.kind)
                sound = self.grouper.find_sound(wanted.lanes)
                return Work(purpose=wanted.purpose, groups=(TrialGroup(lanes=sound),), wanted=wanted)
        waiting = [*self._fixed, *self._groups]
        if not waiting:
            return None
        if has_time and not self._is_measuring_cost and self.packer.wants_cost(waiting):
            self._is_measuring_cost = True
            return Work(purpose=Purpose.LOADING, groups=(waiting[0],))
        pack = self.packer.take(waiting)
        self._remove(pack)
        return Work(purpose=Purpose.TRAIN, groups=tuple(pack))

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

    def put_back(self, work: Work) -> None:
        """Let work wait again that could not be done; what was to be measured is measured again."""
        if work.wanted is not None:
            self._measuring.discard(work.wanted.kind)
        elif work.purpose is Purpose.LOADING:
            self._is_measuring_cost = False
        elif work.purpose is Purpose.TRAIN:
            self.add_groups(work.groups)

    def take_profile(self, wanted: Unsized, profile: Profile, ending: Ending | None) -> None:
        """Learn how many lanes of a kind pay."""
        self._measuring.discard(wanted.kind)
        self._is_stale = True
        self.grouper.take_profile(wanted, profile, ending)

    def take_alone(self, wanted: Unsized, measurement: Measurement | None) -> None:
        """Learn what a step of one trial of a kind costs."""
        self._measuring.discard(wanted.kind)
        self._is_stale = True
        self.grouper.take_alone(wanted, measurement)

    def take_cost(self, group: TrialGroup, cost: LoadingCost | None) -> None:
        """Learn what loading costs."""
        self._is_measuring_cost = False
        self.packer.take_cost(group, cost)

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
        found = self.grouper.sort(lanes)
        self._groups = deque(found.groups)
        self._unsized = list(found.unsized)
        self._lanes = [lane for wanted in found.unsized for lane in wanted.lanes]
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
