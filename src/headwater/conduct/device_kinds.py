"""Where a study trains what, if its devices are of unlike kinds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from headwater.conduct.grouping import Grouper, Work
from headwater.plan.moves import GroupTime, Move
from headwater.plan.surface import Shape, Surface
from headwater.plan.unlike_devices import DeviceSurfaces, match_devices
from headwater.trials import Device, Lane, Purpose, TrialGroup


class DeviceKinds:
    """Learns how fast each kind of device is for whom, and seats by that what is to train."""

    def __init__(self, kinds: Mapping[str, str], grouper: Grouper) -> None:
        self.surfaces = DeviceSurfaces()
        self._kinds = kinds
        """By the name of a device."""
        self._grouper = grouper
        self._usual: str | None = None
        """The kind that trained first: what is known of numbers of lanes and devices is in its seconds."""
        self._num_seen, self._are_unlike = 0, False

    @property
    def are_unlike(self) -> bool:
        """Whether devices of several kinds were seen."""
        if len(self._kinds) != self._num_seen:
            self._num_seen, self._are_unlike = len(self._kinds), len(set(self._kinds.values())) > 1
        return self._are_unlike

    def see(self, devices: Sequence[str], lane: Lane, shape: Shape, seconds: float, *, is_first: bool = False) -> float:
        """Learn from an epoch that was trained; return how long it would have taken on the usual kind of device.

        The first epoch of a function has its beginning in it, so it tells less than others.
        """
        device, kind = self._find_kind(devices), self._grouper.kind_of(lane)
        if self._usual is None:
            self._usual = device
        surface = self.surfaces.surfaces.get(device)
        is_new = surface is None or shape not in surface.epochs.get(kind, {})
        if shape.num_devices == 1 and (is_new or not is_first):
            self.surfaces.add_epoch(device, kind, shape, seconds, self._grouper.time_steps(lane))
        return seconds * self.surfaces.compare(device, self._usual)

    def seat(
        self, works: Sequence[Work], widths: Sequence[int], names: Sequence[str], *, num_epochs: int | None
    ) -> list[tuple[str, ...]]:
        """Return the devices of each work, of those that are idle: so many, or fewer where there are not so many alike.

        What loses most by a slow device has a fast one; where no more wait, what trains longest.
        """
        kinds = [self._kinds.get(name, "") for name in names] if works and self.are_unlike else []
        if len(set(kinds)) < 2:
            return cut_names(names, widths)
        free: dict[str, list[str]] = defaultdict(list)
        for name, kind in zip(names, kinds, strict=True):
            free[kind].append(name)
        seats: dict[int, tuple[str, ...]] = {}
        for place, width in enumerate(widths):
            if width > 1:
                seats[place] = self._take_alike(free, width)
        taken = {name for seat in seats.values() for name in seat}
        left = [name for name in names if name not in taken]
        lone = [place for place in range(len(works)) if place not in seats]
        times = [self._time(works[place], num_epochs, set(kinds)) for place in lone]
        chosen = match_devices(times, [self._kinds.get(name, "") for name in left], is_last=len(left) > len(lone))
        seats |= {place: (left[seat],) for place, seat in zip(lone, chosen, strict=True)}
        return [seats[place] for place in range(len(works))]

    def find_rank(self, names: Sequence[str], *, num_epochs: int | None) -> Callable[[TrialGroup], float] | None:
        """Return by how much a group is slower on these devices than elsewhere, where they are of one kind of several.

        A slow device that is idle alone is for what loses least there, a fast one for what would lose most elsewhere.
        """
        if not self.are_unlike or not names:
            return None
        kinds = {self._kinds.get(name, "") for name in names}
        others = self.surfaces.surfaces.keys() - kinds
        if len(kinds) > 1 or not others:
            return None
        (present,) = kinds

        def rank(group: TrialGroup) -> float:
            here_s, *there_s = (self._time_group(group, num_epochs, kind) for kind in (present, *others))
            return here_s - min(there_s)

        return rank

    def find_faster(
        self, mine: GroupTime, devices: Sequence[str], idle: Sequence[str], surface: Surface
    ) -> Move | None:
        """Return the move of a group to a faster device that is idle; None where that gains nothing."""
        if not self.are_unlike:
            return None
        present = self._find_kind(devices)
        others = {self._kinds.get(name, "") for name in idle} - {present}
        if not others or mine.shape.num_devices > 1:
            return None
        now_s = self.surfaces.time_epoch(present, mine.kind, mine.shape.num_lanes)
        then_s = min(self.surfaces.time_epoch(kind, mine.kind, mine.shape.num_lanes) for kind in others)
        if not (math.isfinite(now_s) and math.isfinite(then_s)):
            return None
        seconds = mine.seconds_left * then_s / now_s + surface.change_s
        if seconds >= mine.seconds_left:
            return None
        return Move(key=mine.key, seconds_left=seconds, gain_s=mine.seconds_left - seconds, is_elsewhere=True)

    def count_alike(self, devices: Sequence[str], idle: Sequence[str]) -> int:
        """Return how many idle devices are of the kind of these."""
        if not self.are_unlike:
            return len(idle)
        present = self._find_kind(devices)
        return sum(self._kinds.get(name, "") == present for name in idle)

    def order(self, devices: Sequence[Device]) -> list[Device]:
        """Return devices with the fastest first; of equals in the order given."""
        kinds = self.surfaces.order([device.kind for device in devices])
        return sorted(devices, key=lambda device: kinds.index(device.kind))

    def _find_kind(self, devices: Sequence[str]) -> str:
        """Return the kind of some devices; of several, the slowest, which the others wait for."""
        kinds = {self._kinds.get(name, "") for name in devices}
        return kinds.pop() if len(kinds) == 1 else self.surfaces.order(sorted(kinds))[-1]

    def _take_alike(self, free: dict[str, list[str]], width: int) -> tuple[str, ...]:
        """Take devices of one kind, the fastest that has enough: with another among them, all would wait for it."""
        order = self.surfaces.order([kind for kind in free if free[kind]])
        most = max(order, key=lambda kind: len(free[kind]))
        kind = next((kind for kind in order if len(free[kind]) >= width), most)
        taken, free[kind] = free[kind][:width], free[kind][width:]
        return tuple(taken)

    def _time(self, work: Work, num_epochs: int | None, kinds: set[str]) -> dict[str, float]:
        """Return how long a work takes on each kind of device; what nobody has timed has epochs of a second."""
        if work.purpose is not Purpose.TRAIN:
            return dict.fromkeys(kinds, 0.0)
        return {kind: sum(self._time_group(group, num_epochs, kind) for group in work.groups) for kind in kinds}

    def _time_group(self, group: TrialGroup, num_epochs: int | None, device: str) -> float:
        lane = group.lanes[0]
        end = lane.until or num_epochs or lane.start_epoch + 1
        epoch_s = self.surfaces.time_epoch(device, self._grouper.kind_of(lane), len(group))
        if epoch_s == math.inf:
            epoch_s = len(group) * self.surfaces.compare(self._usual or device, device)
        return max(end - lane.start_epoch, 1) * epoch_s


def cut_names(names: Sequence[str], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Return devices in their order, so many for each."""
    seats = []
    start = 0
    for width in widths:
        seats.append(tuple(names[start : start + width]))
        start += width
    return seats
