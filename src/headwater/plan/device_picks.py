"""Which devices make up the numbers that studies are to have: of which kinds, and which ones by name.

Where kinds differ, users pick in turn: who has least for his weight takes one more device, of the kind that is fastest
for the study it is for. So none would rather have what another has, but for one device.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from headwater.trials import Device

LEAST_USE = 0.5
"""A study that keeps less of a fast device busy than this takes a slower one, where others want more than there are."""


class Demand(Protocol):
    """What of a study decides over its devices."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def priority(self) -> float:
        """Higher ones pick first."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Which it has."""

    @property
    def speeds(self) -> Mapping[str, float]:
        """How fast it is by kind of device."""

    @property
    def utilisations(self) -> Mapping[str, float]:
        """How much of a device it keeps busy, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picker:
    """A user who picks for his studies, in their order."""

    user: str
    weight: float
    most: int
    """How many devices he may have."""
    studies: tuple[Demand, ...]


def pick_kinds(
    pickers: Sequence[Picker],
    wanted: Mapping[str, int],
    caps: Mapping[str, int],
    devices: Sequence[Device],
    *,
    is_scarce: bool,
) -> dict[str, Counter[str]]:
    """Return how many devices of each kind each study has, of as many as are wanted for it.

    What nobody whose it would be can use goes to others, as far as they can use it.
    """
    kind_of = {device.name: device.kind for device in devices}
    there = Counter(kind_of.values())
    held = {name for picker in pickers for study in picker.studies for name in study.devices}
    picks = _Picks(there, kind_of, held, is_scarce=is_scarce)
    if len(there) == 1 and all(_speed(one, *there) > 0 for picker in pickers for one in picker.studies):
        return {study: Counter(dict.fromkeys(there, count)) for study, count in wanted.items()}
    picks.go_round(pickers, wanted)
    if picks.num_left and any(picks.count(study) < count for study, count in wanted.items()):
        picks.go_round(pickers, caps)
    return picks.taken


def name_devices(
    studies: Sequence[Demand], kinds: Mapping[str, Counter[str]], devices: Sequence[Device]
) -> dict[str, tuple[str, ...]]:
    """Return the names of so many devices of each kind for each study: first those that it has, then free ones."""
    kind_of = {device.name: device.kind for device in devices}
    kept: dict[str, list[str]] = {}
    missing: dict[str, Counter[str]] = {}
    taken: set[str] = set()
    for study in studies:
        missing[study.id] = left = Counter(kinds.get(study.id, Counter()))
        kept[study.id] = own = []
        for name in study.devices:
            kind = kind_of.get(name)
            if kind is not None and name not in taken and left[kind] > 0:
                left[kind] -= 1
                own.append(name)
                taken.add(name)
    held = {name for study in studies for name in study.devices}
    free: dict[str, list[str]] = defaultdict(list)
    for name in sorted(kind_of.keys() - taken, key=lambda one: (one in held, one), reverse=True):
        free[kind_of[name]].append(name)
    for study in studies:
        for kind in sorted(missing[study.id]):
            kept[study.id] += [free[kind].pop() for _ in range(missing[study.id][kind])]
    return {study.id: tuple(kept[study.id]) for study in studies}


class _Picks:
    """Devices that go out one by one."""

    def __init__(
        self, there: Mapping[str, int], kind_of: Mapping[str, str], held: Collection[str], *, is_scarce: bool
    ) -> None:
        self.taken: dict[str, Counter[str]] = defaultdict(Counter)
        self._left = dict(there)
        self._kind_of = kind_of
        self._is_scarce = is_scarce
        self._free = Counter(kind for name, kind in kind_of.items() if name not in held)
        self._orders: dict[str, list[str]] = {}

    @property
    def num_left(self) -> int:
        return sum(self._left.values())

    def count(self, study: str) -> int:
        return self.taken[study].total()

    def go_round(self, pickers: Sequence[Picker], limits: Mapping[str, int]) -> None:
        """Have users pick in turn until each has so many for each study, or nothing is left that they can use."""
        open_studies = {
            picker.user: [study for study in picker.studies if self.count(study.id) < limits.get(study.id, 0)]
            for picker in pickers
        }
        counts = {picker.user: sum(self.count(study.id) for study in picker.studies) for picker in pickers}
        agenda = [(counts[one.user] / one.weight, one.user, place) for place, one in enumerate(pickers)]
        heapify(agenda)
        while agenda:
            _, user, place = agenda[0]
            picker = pickers[place]
            if counts[user] < picker.most and self._pick(open_studies[user], limits):
                counts[user] += 1
                heapreplace(agenda, (counts[user] / picker.weight, user, place))
            else:
                heappop(agenda)

    def _pick(self, studies: list[Demand], limits: Mapping[str, int]) -> bool:
        """Take a device for the first study that can use one, of those of the highest priority who has least."""
        while studies:
            top = studies[0].priority
            study = min((one for one in studies if one.priority == top), key=lambda one: self.count(one.id))
            kind = next((one for one in self._prefer(study) if self._left[one] > 0), None)
            if kind is not None:
                self._left[kind] -= 1
                self.taken[study.id][kind] += 1
            if kind is None or self.count(study.id) >= limits[study.id]:
                studies.remove(study)
            if kind is not None:
                return True
        return False

    def _prefer(self, study: Demand) -> list[str]:
        """Return the kinds that a study can use, the best first; of equals, what it has, then what is free."""
        if study.id not in self._orders:
            held = Counter(self._kind_of[name] for name in study.devices if name in self._kind_of)
            usable = [kind for kind in self._left if _speed(study, kind) > 0]
            self._orders[study.id] = sorted(
                usable, key=lambda kind: (*self._rank(study, kind), -held[kind], -self._free[kind], kind)
            )
        return self._orders[study.id]

    def _rank(self, study: Demand, kind: str) -> tuple[float, float]:
        is_wasted = self._is_scarce and study.utilisations.get(kind, 1.0) < LEAST_USE
        return (1.0, _speed(study, kind)) if is_wasted else (0.0, -_speed(study, kind))


def _speed(study: Demand, kind: str) -> float:
    return study.speeds.get(kind, 1.0)
