"""Many users and unlike devices: is everybody's share fair, and how soon do studies end?

    python benchmarks/coordinator.py fair [--minutes 30] [--seed 0]
    python benchmarks/coordinator.py kinds [--seeds 10]
    python benchmarks/coordinator.py real [--rounds 2]

`fair` plays out 8 users with 60 studies on 1,000 devices that come and go; what a device does changes at reports only.
`kinds` is the setting of the paper on Hydro, 2 + 2 nodes of two kinds and 20 studies within an hour, played out with
the speeds that Gavel's authors have measured. `real` trains, on two cores of this machine, one of them throttled.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import TypeAlias

from headwater.plan.fair_shares import StudyDemand, User, share_devices
from headwater.trials import Device

WINDOW_S = 60
LONGEST_REPORT_S = 10
"""Studies report every 2 to 10 seconds."""
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 5.0)
MINIMUMS = (0, 100, 0, 0, 0, 0, 50, 0)
MAXIMUMS = (None, None, 60, None, None, 150, None, None)
NUM_STUDIES = 60
NUM_DEVICES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=["fair", "kinds", "real"])
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.part == "fair":
        print_fairness(options.minutes, options.seed)
    elif options.part == "kinds":
        from coordinator_kinds import print_kinds

        print_kinds(options.seeds)
    else:
        from coordinator_real import print_real

        print_real(options.rounds)


Share: TypeAlias = Callable[
    [Sequence[User], Sequence[StudyDemand], Sequence[Device], float], dict[str, tuple[str, ...]]
]


@dataclass(slots=True)
class PlayedStudy:
    """A study that wants more or fewer devices as time goes."""

    id: str
    user: str
    begin_s: int
    end_s: int
    report_s: int
    priority: float
    num_wanted: int = 0
    devices: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Cluster:
    """Devices, who has each, and when it reports next."""

    there: dict[str, Device]
    holder: dict[str, str] = field(default_factory=dict)
    report_at: dict[str, int] = field(default_factory=dict)


def print_fairness(minutes: int, seed: int) -> None:
    print(f"8 users, {NUM_STUDIES} studies, {NUM_DEVICES} devices that come and go, {minutes} minutes, seed {seed}\n")
    print(
        "| shares | least of 60 s windows | windows below 95 % | devices idle while wanted | moves a minute | "
        "ms for a decision: mean, worst |\n|---|---|---|---|---|---|"
    )
    for name, share in (("`share_devices`", share_devices), ("in order of arrival", share_in_order)):
        played = play(minutes * 60, seed, share)
        ratios = list(played.ratios)
        print(
            f"| {name} | {min(ratios):.1%} | {sum(ratio < 0.95 for ratio in ratios)} of {len(ratios)} | "
            f"{played.idle_share:.2%} | {played.num_moves / minutes:.0f} | "
            f"{1e3 * fmean(played.seconds):.1f}, {1e3 * max(played.seconds):.1f} |"
        )


@dataclass(slots=True)
class Played:
    """What came of it."""

    ratios: list[float] = field(default_factory=list)
    """Of each user and each window: what he had, of what he was entitled to for a report interval at least."""
    seconds: list[float] = field(default_factory=list)
    num_moves: int = 0
    num_wanted: int = 0
    num_idle: int = 0

    @property
    def idle_share(self) -> float:
        return self.num_idle / max(self.num_wanted, 1)


def play(num_seconds: int, seed: int, share: Share) -> Played:
    """Go through time in seconds; a device that has a new owner changes hands when its old one reports."""
    rng = Random(seed)
    rows = zip(WEIGHTS, MINIMUMS, MAXIMUMS, strict=True)
    users = {
        f"user-{place}": User(name=f"user-{place}", weight=weight, min_devices=low, max_devices=high)
        for place, (weight, low, high) in enumerate(rows)
    }
    studies = [draw_study(rng, place, num_seconds) for place in range(NUM_STUDIES)]
    cluster = Cluster({name: Device(name=name, kind="gpu") for name in (f"gpu:{n:04}" for n in range(NUM_DEVICES))})
    gone: deque[tuple[int, Device]] = deque()
    played = Played()
    books = {name: Book() for name in users}
    for now in range(num_seconds):
        change_devices(rng, cluster, gone, now)
        active = [study for study in studies if study.begin_s <= now < study.end_s]
        for study in active:
            if study.num_wanted == 0 or rng.random() < 1 / 60:
                study.num_wanted = rng.choice([1, 4, 16, 64, 200])
        hold(cluster, active)
        demands = [describe(study) for study in active]
        begin_s = time.perf_counter()
        shares = share([*users.values()], demands, [*cluster.there.values()], float(now))
        played.seconds.append(time.perf_counter() - begin_s)
        played.num_moves += carry_out(cluster, active, shares, now)
        num_usable = min(len(cluster.there), sum(cap(users, active).values()))
        played.num_wanted += num_usable
        played.num_idle += max(num_usable - len(cluster.holder), 0)
        owners = {study.id: study.user for study in active}
        has = Counter(owners[study] for study in cluster.holder.values())
        ideal = fill_level(users, active, len(cluster.there))
        for name, user in list(users.items()):
            users[name] = replace(user, use=user.use.add(has[name], now + 1.0))
            played.ratios += books[name].write(has[name], ideal.get(name, 0.0))
    return played


@dataclass(slots=True)
class Book:
    """What a user had in the last minute, and what he was entitled to all the while that a report may take."""

    ideal: deque[float] = field(default_factory=lambda: deque(maxlen=LONGEST_REPORT_S + 1))
    window: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW_S))

    def write(self, has: float, ideal: float) -> list[float]:
        """Add a second; return what he had of his share in the minute until then, if he was active in all of it."""
        self.ideal.append(ideal)
        self.window.append((has, min(self.ideal)))
        if len(self.window) < WINDOW_S or not all(due > 0 for _, due in self.window):
            return []
        return [sum(had for had, _ in self.window) / sum(due for _, due in self.window)]


def draw_study(rng: Random, place: int, num_seconds: int) -> PlayedStudy:
    begin_s = rng.randrange(num_seconds)
    return PlayedStudy(
        id=f"study-{place:02}",
        user=f"user-{rng.randrange(len(WEIGHTS))}",
        begin_s=max(begin_s - num_seconds // 3, 0),
        end_s=begin_s + rng.randrange(num_seconds // 6, num_seconds),
        report_s=rng.randint(2, LONGEST_REPORT_S),
        priority=rng.choice([0.0, 0.0, 1.0]),
    )


def change_devices(rng: Random, cluster: Cluster, gone: deque[tuple[int, Device]], now: int) -> None:
    """Lose single devices now and then, and a rack of 64 every five minutes; they come back after a while."""
    lost = rng.sample(sorted(cluster.there), 64) if now % 300 == 299 else []
    lost += rng.sample(sorted(cluster.there), 1) if rng.random() < 0.3 else []
    for name in lost:
        if name in cluster.there:
            gone.append((now + rng.randint(20, 120), cluster.there.pop(name)))
            cluster.holder.pop(name, None)
    while gone and gone[0][0] <= now:
        device = gone.popleft()[1]
        cluster.there[device.name] = device


def hold(cluster: Cluster, active: list[PlayedStudy]) -> None:
    """Let studies have what they have, and nothing that is over."""
    running = {study.id: study for study in active}
    cluster.holder = {name: owner for name, owner in cluster.holder.items() if owner in running}
    for study in active:
        study.devices = []
    for name, owner in cluster.holder.items():
        running[owner].devices.append(name)


def describe(study: PlayedStudy) -> StudyDemand:
    return StudyDemand(
        id=study.id,
        user=study.user,
        num_wanted=study.num_wanted,
        priority=study.priority,
        devices=tuple(study.devices),
        submitted_s=float(study.begin_s),
    )


def carry_out(cluster: Cluster, active: list[PlayedStudy], shares: Mapping[str, tuple[str, ...]], now: int) -> int:
    """Give devices to their new owners: idle ones now, others when they report; return how many changed hands."""
    wanted = {name: study for study, names in shares.items() for name in names}
    reports = {study.id: study.report_s for study in active}
    num_moves = 0
    for name in cluster.there:
        owner, new = cluster.holder.get(name), wanted.get(name)
        is_free = owner is None or now >= cluster.report_at[name]
        if owner is not None and is_free:
            cluster.report_at[name] = now + reports[owner]
        if owner == new or not is_free:
            continue
        num_moves += 1
        if new is None:
            del cluster.holder[name]
        else:
            cluster.holder[name] = new
            cluster.report_at[name] = now + reports[new]
    return num_moves


def cap(users: Mapping[str, User], active: list[PlayedStudy]) -> dict[str, int]:
    wanted = Counter[str]()
    for study in active:
        wanted[study.user] += study.num_wanted
    return {name: min(count, users[name].max_devices or count) for name, count in wanted.items()}


def fill_level(users: Mapping[str, User], active: list[PlayedStudy], num_devices: int) -> dict[str, float]:
    """Return everybody's weighted max-min share by halving an interval: not the code that is tried here."""
    caps = cap(users, active)
    lows = {name: min(users[name].min_devices, most) for name, most in caps.items()}

    def fill(level: float) -> dict[str, float]:
        return {name: min(max(level * users[name].weight, lows[name]), most) for name, most in caps.items()}

    low, high = 0.0, float(num_devices)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(fill(middle).values()) < num_devices else (low, middle)
    return fill(high if sum(caps.values()) <= num_devices else low)


def share_in_order(
    users: Sequence[User], studies: Sequence[StudyDemand], devices: Sequence[Device], now_s: float
) -> dict[str, tuple[str, ...]]:
    """Give each study all that it can use, in the order in which they came: a control that must fail."""
    most = {user.name: user.max_devices or len(devices) for user in users}
    there = {device.name for device in devices}
    taken: set[str] = set()
    shares: dict[str, list[str]] = {}
    for study in sorted(studies, key=lambda one: (one.submitted_s, one.id)):
        count = min(study.num_wanted, most[study.user])
        own = [name for name in study.devices if name in there - taken][:count]
        taken.update(own)
        shares[study.id] = own
        most[study.user] -= count
    free = [name for name in sorted(there) if name not in taken]
    most = {user.name: user.max_devices or len(devices) for user in users}
    for study in sorted(studies, key=lambda one: (one.submitted_s, one.id)):
        count = min(study.num_wanted, most[study.user]) - len(shares[study.id])
        shares[study.id] += [free.pop() for _ in range(min(max(count, 0), len(free)))]
        most[study.user] -= min(study.num_wanted, most[study.user])
    return {study: tuple(names) for study, names in shares.items()}


if __name__ == "__main__":
    main()
