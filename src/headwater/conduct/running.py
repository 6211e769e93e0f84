"""What a conductor knows of the placements that run now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.conduct.grouping import Work
from headwater.conduct.study_trials import Judgement
from headwater.trials import Lane, Placement, Purpose, TrialGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """How a group that leaves is placed anew."""

    num_parts: int | None = None
    """Into how many groups its lanes are cut; None: they are sorted anew, with all that wait."""
    num_devices: int = 1
    """How many devices each of them has."""
    device: str = ""
    """The device that they wait for; "": the one that they had."""


@dataclass(slots=True)
class RunningGroup:
    """A group that trains now, on some device."""

    group: TrialGroup
    numbers: list[int]
    """The trials that are still in it."""
    epoch: int
    """How many epochs they have trained."""
    num_epochs: int = 0
    """How many they train in all; 0 while that is not known."""
    loners: list[Lane] = field(default_factory=list)
    """Lanes that have left to be placed anew, and wait for their states to be saved."""
    since_s: float | None = None
    """When it has reported last, or begun; None before that."""
    epoch_s: float = 0.0
    """How long its last epoch took; 0 while that is not known."""
    train_s: float = 0.0
    """And without what was saved before it."""
    saved_s: float = 0.0
    """How long was saved since its last report."""
    judgement: Judgement | None = None
    """What was decided at its last report, until that is recorded."""
    regrouping: Regrouping | None = None
    """How it is placed anew, where all its lanes leave at the next report; None where it goes on."""

    @classmethod
    def start(cls, group: TrialGroup) -> RunningGroup:
        """Return the group as it starts."""
        return cls(group, list(group.numbers), group.lanes[0].start_epoch)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that are still in it."""
        return self.group.lanes if len(self.numbers) == len(self.group) else self.select(self.numbers)

    @property
    def has_shrunk(self) -> bool:
        """Whether it is smaller than when it began, and can go on elsewhere."""
        return 0 < len(self.numbers) < len(self.group) and self.num_epochs > 0

    @property
    def end_epoch(self) -> int:
        """The epoch at which it ends, or pauses."""
        ends = [lane.until for lane in self.lanes if lane.until is not None]
        return min([*ends, self.num_epochs or self.epoch]) if ends or self.num_epochs else self.epoch

    @property
    def unrecorded(self) -> tuple[Lane, ...]:
        """The lanes that are still in it, or have left it and are not recorded where they stand."""
        if self.judgement is not None:
            return self.select(self.judgement.numbers)
        return self.select([*self.numbers, *(lane.number for lane in self.loners)])

    def time_epoch(self, now_s: float) -> None:
        """Take in that it reports now."""
        self.epoch_s = 0.0 if self.since_s is None else now_s - self.since_s
        self.train_s = max(self.epoch_s - self.saved_s, 0.0)
        self.since_s, self.saved_s = now_s, 0.0

    def select(self, numbers: Sequence[int]) -> tuple[Lane, ...]:
        """Return the lanes of these trials."""
        chosen = frozenset(numbers)
        return tuple(lane for lane in self.group.lanes if lane.number in chosen)


@dataclass(slots=True)
class RunningPlacement:
    """A placement that runs now: its groups by their keys."""

    placement: Placement
    work: Work
    groups: dict[int, RunningGroup] = field(default_factory=dict)
    is_leaving: bool = False
    """Whether its groups leave at their next reports, so that none joins them."""
    since_s: float | None = None
    """Since when the same trials have sat on its devices; None while it gets ready to train."""
    seated: tuple[int, ...] = ()
    """Which these are."""
    is_lent: bool = False
    """Whether its device is lent, and only has the time that its owner leaves."""

    @classmethod
    def start(cls, placement: Placement, work: Work, now_s: float, *, is_lent: bool = False) -> RunningPlacement:
        """Return the placement as it starts.

        What trains begins with its first group, so that getting ready counts as idle; what is measured, now.
        """
        since_s = None if placement.purpose is Purpose.TRAIN else now_s
        running = cls(placement, work, since_s=since_s, is_lent=is_lent)
        running.add(placement.groups)
        running.seated = running.numbers
        return running

    @property
    def has_begun(self) -> bool:
        """Whether one of its groups trains."""
        return any(group.since_s is not None for group in self.groups.values())

    @property
    def is_pack(self) -> bool:
        """Whether groups take turns in it."""
        return len(self.placement.groups) > 1

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials that are in it now."""
        return tuple(number for group in self.groups.values() for number in group.numbers)

    def leave(self, devices: Collection[str] | None) -> None:
        """Have its groups leave at their next reports, where one of its devices is among these; None: in any case.

        Where others of its devices stay, they are its own when they are idle.
        """
        staying = [name for name in self.placement.devices if devices is not None and name not in devices]
        if len(staying) == len(self.placement.devices):
            return
        self.is_leaving = True
        is_kept = bool(staying) and not self.is_pack
        for group in self.groups.values():
            group.regrouping = Regrouping(num_parts=1, num_devices=len(staying)) if is_kept else Regrouping()

    def add(self, groups: Sequence[TrialGroup]) -> None:
        """Take in groups that train there."""
        self.groups |= {group.key: RunningGroup.start(group) for group in groups}


RunningPlacements: TypeAlias = Collection[RunningPlacement]
"""All that run now."""


def require_idle(placement: Placement, busy: Collection[str]) -> None:
    """Stop a run that hands out a device on which something still trains, before the record has two spans there.

    Raises:
        AssertionError: That is a fault of Headwater; also `python -O` stops the run.
    """
    taken = sorted({*placement.devices}.intersection(busy))
    if taken or len({*placement.devices}) < len(placement.devices):
        raise AssertionError(
            f"{', '.join(taken or placement.devices)} was handed out to {placement.study!r} while a group still "
            "trains there; please report this"
        )
