"""Which devices each study of many users has now: fair by users, in device-seconds, with few moves.

Users share by weighted max-min: nobody's share can grow without taking from somebody who has less for his weight.
Shares are seldom whole numbers. What is left of a device goes to one of those who want it, and in turn to the others:
who has used least for his weight is next. Use fades, so that what was long ago counts for nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from headwater.errors import PlanError
from headwater.plan.device_picks import Picker, name_devices, pick_kinds
from headwater.trials import Device

HALF_LIFE_S = 3600.0
"""After so long, what a user has used counts for half."""
TURN_S = 5.0
"""So long does a user keep the part of a device that is not his alone, before it is another's turn."""
TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingUse:
    """How many device-seconds a user has used, of which half is forgotten after a half-life.

    Raises:
        PlanError: A number makes no sense.
    """

    device_s: float = 0.0
    at_s: float = 0.0
    """When that was right."""
    half_life_s: float = HALF_LIFE_S

    def __post_init__(self) -> None:
        if not (self.half_life_s > 0 and 0 <= self.device_s < math.inf):
            raise PlanError(
                f"a use of {self.device_s} device-seconds has a half-life of {self.half_life_s} s; the first must be "
                "at least 0, the second more than 0"
            )

    def read(self, now_s: float) -> float:
        """Return what is left of it now."""
        return float(self.device_s * 0.5 ** (max(now_s - self.at_s, 0.0) / self.half_life_s))

    def add(self, num_devices: float, until_s: float) -> FadingUse:
        """Return it after so many devices were used from then on until now; the first seconds have faded most."""
        mean_life_s = self.half_life_s / math.log(2)
        kept = 0.5 ** (max(until_s - self.at_s, 0.0) / self.half_life_s)
        device_s = self.device_s * kept + num_devices * mean_life_s * (1 - kept)
        return FadingUse(device_s=device_s, at_s=max(until_s, self.at_s), half_life_s=self.half_life_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who shares, and how much is his.

    Raises:
        PlanError: A number makes no sense.
    """

    name: str
    weight: float = 1.0
    min_devices: int = 0
    """He has as many where his studies can use them, whatever his weight."""
    max_devices: int | None = None
    """He never has more, even if they are idle; None for any number."""
    use: FadingUse = field(default_factory=FadingUse)
    budget_left_s: float | None = None
    """Device-seconds that he may still use; None for any number."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise PlanError(f"{self.name} has the weight {self.weight}; it must be a number above 0")
        most = math.inf if self.max_devices is None else self.max_devices
        if not 0 <= self.min_devices <= most:
            raise PlanError(
                f"{self.name} has at least {self.min_devices} devices and at most {self.max_devices}; the first must "
                "lie between 0 and the second"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDemand:
    """What a study could use now."""

    id: str
    user: str
    num_wanted: int
    """How many devices it could use at this moment."""
    priority: float = 0.0
    """Of the studies of one user, those of a higher one have all that they can use first."""
    devices: tuple[str, ...] = ()
    """Which it has now."""
    budget_left_s: float | None = None
    """Device-seconds that it may still use; None for any number."""
    report_s: float = 0.0
    """How long it keeps a device at least, for it can be taken only at a report: a budget must last for that."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """By kind of device: how fast it trains there, on any scale of its own; 0 where it cannot, 1 where nothing is
    said."""
    utilisations: Mapping[str, float] = field(default_factory=dict)
    """By kind of device: what share of one it keeps busy, as far as known."""
    submitted_s: float = 0.0
    """Where all else is equal, who came first is first."""

    @property
    def order(self) -> tuple[float, float, str]:
        """Where it stands among the studies of its user."""
        return -self.priority, self.submitted_s, self.id


def share_devices(
    users: Sequence[User],
    studies: Sequence[StudyDemand],
    devices: Sequence[Device],
    now_s: float,
    *,
    turn_s: float = TURN_S,
) -> dict[str, tuple[str, ...]]:
    """Return the devices that each study is to have now, by its id; those that it is to keep come first.

    The answer depends on the arguments alone, not on their order. No device stays idle that somebody can use, nobody
    has more than he may, and of two users with equal weights who both want more, none has more than one device more
    than the other. A study without budget, or whose user has none, gets nothing. It keeps the devices that it has as
    far as its share goes; what it has beyond that is somebody else's from its next report on.

    Raises:
        PlanError: A study's user is not among the users, or two of a kind have one name.
    """
    _require_names(users, studies, devices)
    there = {device.name for device in devices}
    by_user: dict[str, list[StudyDemand]] = defaultdict(list)
    for study in sorted(studies, key=lambda one: one.order):
        has_lost = not there.issuperset(study.devices)
        kept = tuple(name for name in study.devices if name in there) if has_lost else study.devices
        by_user[study.user].append(replace(study, devices=kept) if has_lost else study)
    known = sorted((user for user in users if user.name in by_user), key=lambda one: one.name)
    caps = {study.id: _cap_study(study) for study in studies}
    most = {user.name: _cap_user(user, by_user[user.name], caps) for user in known}
    holding = {user.name: sum(len(study.devices) for study in by_user[user.name]) for user in known}
    counts = _count_by_user(known, most, holding, len(devices), now_s, turn_s)
    wanted: dict[str, int] = {}
    for user in known:
        wanted |= _count_by_study(by_user[user.name], caps, counts[user.name])
    pickers = [
        Picker(user=user.name, weight=user.weight, most=most[user.name], studies=tuple(by_user[user.name]))
        for user in known
    ]
    is_scarce = sum(most.values()) > len(devices)
    kinds = pick_kinds(pickers, wanted, caps, devices, is_scarce=is_scarce)
    ordered = [study for user in known for study in by_user[user.name]]
    return name_devices(ordered, kinds, devices)


def weigh_shares(users: Sequence[User], most: Mapping[str, int], num_devices: int) -> dict[str, float]:
    """Return each user's weighted max-min share in devices and parts of them, where each can use so many at most.

    Minimums come first. Where there are too few devices for all minimums, these are shared by weight.
    """
    lows = [min(user.min_devices, most[user.name]) for user in users]
    highs = [most[user.name] for user in users]
    if sum(lows) > num_devices:
        lows, highs = [0] * len(users), lows
    weights = [user.weight for user in users]
    level = _find_level(weights, lows, highs, num_devices)
    shares = (min(max(level * weight, low), high) for weight, low, high in zip(weights, lows, highs, strict=True))
    return {user.name: share for user, share in zip(users, shares, strict=True)}


def _find_level(weights: Sequence[float], lows: Sequence[int], highs: Sequence[int], total: int) -> float:
    """Return how much each unit of weight gets, so that all together have `total`, or all that they can use."""

    def fill(level: float) -> float:
        rows = zip(weights, lows, highs, strict=True)
        return math.fsum(min(max(level * weight, low), high) for weight, low, high in rows)

    corners = [bound / weight for weight, low, high in zip(weights, lows, highs, strict=True) for bound in (low, high)]
    corners = sorted({0.0, *corners})
    place = bisect_left(corners, total - TINY, key=fill)
    if place == 0 or place == len(corners):
        return corners[min(place, len(corners) - 1)]
    low, high = corners[place - 1], corners[place]
    below, above = fill(low), fill(high)
    return low + (high - low) * (total - below) / (above - below) if above > below else high


def _count_by_user(
    users: Sequence[User],
    most: Mapping[str, int],
    holding: Mapping[str, int],
    num_devices: int,
    now_s: float,
    turn_s: float,
) -> dict[str, int]:
    """Return whole numbers next to the shares: what is left over goes to those who have used least for their weight.

    Who has such a device now keeps it until he has used more of it than others, by a turn.
    """
    shares = weigh_shares(users, most, num_devices)
    counts = {name: math.floor(share + TINY) for name, share in shares.items()}
    num_left = round(math.fsum(shares.values())) - sum(counts.values())

    def lag(user: User) -> tuple[float, str]:
        has_turn = holding[user.name] > counts[user.name]
        return (user.use.read(now_s) - turn_s * has_turn) / user.weight, user.name

    open_users = [user for user in users if shares[user.name] > counts[user.name] + TINY]
    for user in sorted(open_users, key=lag)[:num_left]:
        counts[user.name] += 1
    return counts


def _count_by_study(studies: Sequence[StudyDemand], caps: Mapping[str, int], num_devices: int) -> dict[str, int]:
    """Share a user's devices among his studies: higher priorities first, equal ones alike, as whole numbers."""
    counts: dict[str, int] = {}
    for _, level in groupby(studies, key=lambda study: study.priority):
        equals = list(level)
        share = _find_level([1.0] * len(equals), [0] * len(equals), [caps[one.id] for one in equals], num_devices)
        own = {one.id: min(math.floor(share + TINY), caps[one.id]) for one in equals}
        num_left = min(num_devices, sum(caps[one.id] for one in equals)) - sum(own.values())
        by_turn = sorted(equals, key=lambda one: (len(one.devices) <= own[one.id], one.order))
        for study in [one for one in by_turn if own[one.id] < caps[one.id]][:num_left]:
            own[study.id] += 1
        num_devices -= sum(own.values())
        counts |= own
    return counts


def _cap_study(study: StudyDemand) -> int:
    return max(min(study.num_wanted, _afford(study.budget_left_s, study.report_s)), 0)


def _cap_user(user: User, studies: Sequence[StudyDemand], caps: Mapping[str, int]) -> int:
    wanted = sum(caps[study.id] for study in studies)
    longest_s = max((study.report_s for study in studies if caps[study.id]), default=0.0)
    most = wanted if user.max_devices is None else min(wanted, user.max_devices)
    return min(most, _afford(user.budget_left_s, longest_s))


def _afford(budget_s: float | None, report_s: float) -> int:
    """Return how many devices a budget lasts for until the next report."""
    unlimited = 1 << 31
    if budget_s is None:
        return unlimited
    if budget_s <= 0:
        return 0
    return min(int(budget_s / report_s), unlimited) if report_s > 0 else unlimited


def _require_names(users: Sequence[User], studies: Sequence[StudyDemand], devices: Sequence[Device]) -> None:
    for what, names in (
        ("users", [user.name for user in users]),
        ("studies", [study.id for study in studies]),
        ("devices", [device.name for device in devices]),
    ):
        if len(set(names)) < len(names):
            twice = min(name for name, count in Counter(names).items() if count > 1)
            raise PlanError(f"two {what} are called {twice}; give each a name of its own")
    known = {user.name for user in users}
    strangers = sorted(study.id for study in studies if study.user not in known)
    if strangers:
        raise PlanError(f"whose is {strangers[0]}? its user is none of {', '.join(sorted(known)) or 'nobody'}; add him")
