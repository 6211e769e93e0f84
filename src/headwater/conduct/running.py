"""What a conductor knows of the placements that run now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.conduct.study_trials import Judgement
from headwater.conduct.waiting import Work
from headwater.trials import Lane, Placement, Purpose, TrialGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """How a group that leaves is placed anew."""

    num_parts: int | None = None
    """Into how many groups its lanes are cut; None: they are sorted anew, with all that wait."""
    num_devices: int = 1
    """How many devices each of them has."""


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

    epoch_s: float = 0.0
    """How long its last epoch took; 0 while that is not known."""
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
        return self.select(self.numbers)

    @property
    def unrecorded(self) -> tuple[Lane, ...]:
        """The lanes that are still in it, or have left it and are not recorded where they stand."""
        if self.judgement is not None:
            return self.select(self.judgement.numbers)
        return self.select([*self.numbers, *(lane.number for lane in self.loners)])

    def select(self, numbers: Sequence[int]) -> tuple[Lane, ...]:
        """Return the lanes of these trials."""
        return tuple(lane for lane in self.group.lanes if lane.number in numbers)


@dataclass(slots=True)
class RunningPlacement:
    """A placement that runs now: its groups by their keys."""

    placement: Placement
    work: Work
    groups: dict[int, RunningGroup] = field(default_factory=dict)
    is_leaving: bool = False
    """Whether its groups leave at their next reports, so that none joins them."""

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


class RunningPlacements:
    """All placements that run now, by their keys."""

    def __init__(self) -> None:
        self._placements: dict[int, RunningPlacement] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._placements

    def __getitem__(self, key: int) -> RunningPlacement:
        return self._placements[key]

    def get(self, key: int) -> RunningPlacement | None:
        """Return a placement; None where it is over."""
        return self._placements.get(key)

    def __iter__(self) -> Iterator[RunningPlacement]:
        return iter(list(self._placements.values()))

    def trains_beside(self, running: RunningPlacement) -> bool:
        """Tell whether another placement trains: not measures."""
        return any(other is not running and other.work.purpose is Purpose.TRAIN for other in self)

    def add(self, placement: Placement, work: Work) -> None:
        """Take in a placement."""
        running = RunningPlacement(placement, work)
        running.add(placement.groups)
        self._placements[placement.key] = running

    def remove(self, key: int) -> RunningPlacement:
        """Take in that a placement is over."""
        return self._placements.pop(key)
