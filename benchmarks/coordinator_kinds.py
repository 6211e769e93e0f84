"""Twenty studies on two kinds of devices: when each ends, under several ways to share.

A study is a multi-fidelity search: stages of ever fewer trials that train ever longer. A stage can use as many devices
as it has trials. What a trial does in a second on each kind of device is from Gavel's table. Devices change hands every
30 s at most, and one that does is lost for 5 s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from random import Random
from statistics import fmean, stdev
from typing import TypeAlias

import coordinator_bound
from coordinator_bound import BoundStage, BoundStudy
from kind_shares import Contender, Goal, share_kinds

from headwater.plan.device_picks import name_devices
from headwater.plan.fair_shares import StudyDemand, User, share_devices
from headwater.trials import Device

THROUGHPUTS = {
    "ResNet-50, 16": (17.374, 8.108, 2.702),
    "ResNet-50, 32": (9.921, 4.439, 1.470),
    "ResNet-50, 64": (5.458, 2.038, 0.773),
    "ResNet-50, 128": (2.846, 1.082, 0.296),
    "ResNet-18, 16": (77.317, 46.038, 17.920),
    "ResNet-18, 32": (65.805, 39.994, 13.415),
    "ResNet-18, 64": (48.884, 30.845, 7.749),
    "ResNet-18, 128": (30.288, 17.435, 4.660),
    "ResNet-18, 256": (16.987, 9.942, 2.510),
    "Transformer, 16": (12.846, 5.512, 5.512),
    "Transformer, 32": (12.475, 5.390, 3.844),
    "Transformer, 64": (9.568, 5.072, 2.022),
    "Transformer, 128": (5.771, 3.030, 1.038),
    "Transformer, 256": (1.707, 1.707, 0.515),
    "Recommendation, 512": (0.331, 0.219, 0.207),
    "Recommendation, 1024": (0.480, 0.297, 0.249),
    "Recommendation, 2048": (0.568, 0.264, 0.261),
    "Recommendation, 4096": (0.624, 0.256, 0.240),
    "Recommendation, 8192": (0.602, 0.277, 0.215),
    "CycleGAN": (4.918, 2.447, 0.529),
    "A3C": (8.233, 4.755, 3.829),
    "LM, 5": (167.123, 121.961, 31.821),
    "LM, 10": (143.361, 103.564, 29.665),
    "LM, 20": (107.951, 77.567, 21.761),
    "LM, 40": (71.723, 42.752, 13.807),
    "LM, 80": (43.904, 26.360, 7.847),
}
"""Steps a second on V100, P100 and K80, by model and batch size: `oracle_throughputs.json` of Gavel (OSDI'20),
github.com/stanford-futuredata/gavel, MIT licence, rounded."""
COLUMNS = {"V100": 0, "P100": 1, "K80": 2}
NUM_STUDIES = 20
PER_KIND = 16
ROUND_S = 30.0
LOST_S = 5.0
IDEAL = "the same, work known, changes free"
"""What `share_kinds` would do if it knew how much work is left, every 10 s, and devices changed hands for nothing."""
ESTIMATE_ERROR = 0.3
"""How wrong is what a policy believes of the work that is left: the deviation of its logarithm."""


@dataclass(slots=True)
class PlayedStudy:
    """A study on its way."""

    id: str
    arrival_s: float
    stages: list[tuple[int, float]]
    """Trials, and the work of each in seconds on the fast kind."""
    rates: Mapping[str, float]
    """By kind of device, as a share of the fast one."""
    misjudged: float
    trials: list[float] = field(default_factory=list)
    """What is left of those of the stage at hand, which is the first."""
    devices: tuple[str, ...] = ()
    end_s: float | None = None

    @property
    def work_left(self) -> float:
        return sum(self.trials) + sum(count * seconds for count, seconds in self.stages[1:])

    @property
    def num_wanted(self) -> int:
        return len(self.trials)

    def begin_stage(self) -> None:
        count, seconds = self.stages[0]
        self.trials = [seconds] * count


@dataclass(slots=True)
class Market:
    """What a policy sees, and what it remembers."""

    devices: list[Device]
    credits: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(device.kind for device in self.devices))


Policy: TypeAlias = Callable[[Sequence[PlayedStudy], Market, float], Mapping[str, tuple[str, ...]]]


def print_kinds(num_seeds: int) -> None:
    for slow in ("P100", "K80"):
        for load in (0.6, 1.2):
            print_setting(slow, load, num_seeds)


def print_setting(slow: str, load: float, num_seeds: int) -> None:
    print(
        f"\n16 V100 and 16 {slow}, {NUM_STUDIES} studies within an hour, {load:.0%} of what all devices can do in it;"
    )
    print(f"{num_seeds} seeds\n")
    print("| policy | mean completion, min | against fifo: mean, worst seed | over the bound |\n|---|---|---|---|")
    means: dict[str, list[float]] = {}
    bounds = []
    for seed in range(num_seeds):
        bounds.append(find_bound(draw_studies(Random(seed), slow, load), slow))
        for name, policy in POLICIES.items():
            means.setdefault(name, []).append(play(draw_studies(Random(seed), slow, load), slow, policy))
        known = [replace(study, misjudged=1.0) for study in draw_studies(Random(seed), slow, load)]
        means.setdefault(IDEAL, []).append(play(known, slow, share_by_end, round_s=10.0, lost_s=0.0))
    for name, found in means.items():
        gains = [fifo / mine for fifo, mine in zip(means["fifo"], found, strict=True)]
        over = fmean(mine / bound for mine, bound in zip(found, bounds, strict=True))
        spread = f" ± {stdev(gains):.2f}" if len(gains) > 1 else ""
        print(f"| {name} | {fmean(found) / 60:.1f} | {fmean(gains):.2f}{spread}, {min(gains):.2f} | {over:.2f} |")
    most = [fifo / bound for fifo, bound in zip(means["fifo"], bounds, strict=True)]
    spread = f" ± {stdev(most):.2f}" if len(most) > 1 else ""
    print(f"| bound | {fmean(bounds) / 60:.1f} | {fmean(most):.2f}{spread}, {min(most):.2f} | 1.00 |")
    print(f"\ngreedy shares instead of exact ones: gap of {measure_gap(slow, load):.1%} at most, as it says of itself")


def draw_studies(rng: Random, slow: str, load: float) -> list[PlayedStudy]:
    """Draw models, sizes and arrivals; all works are scaled so that they amount to the load."""
    studies = []
    for place in range(NUM_STUDIES):
        row = THROUGHPUTS[rng.choice(sorted(THROUGHPUTS))]
        num_trials, size = rng.choice([9, 27, 54, 81]), rng.uniform(0.5, 2.0)
        stages = [(max(num_trials // 3**rung, 1), size * 3**rung) for rung in range(4)]
        rates = {"V100": 1.0, slow: row[COLUMNS[slow]] / row[0]}
        arrival_s, misjudged = rng.uniform(0, 3600), math.exp(rng.gauss(0, ESTIMATE_ERROR))
        studies.append(PlayedStudy(f"study-{place:02}", arrival_s, stages, rates, misjudged))
    total = sum(count * seconds for study in studies for count, seconds in study.stages)
    mean_slow = fmean(study.rates[slow] for study in studies)
    factor = load * 3600 * PER_KIND * (1 + mean_slow) / total
    for study in studies:
        study.stages = [(count, seconds * factor) for count, seconds in study.stages]
        study.begin_stage()
    return studies


def play(
    studies: list[PlayedStudy], slow: str, policy: Policy, round_s: float = ROUND_S, lost_s: float = LOST_S
) -> float:
    """Play it out in rounds; return the mean time from arrival to end."""
    pairs = [(kind, place) for place in range(PER_KIND) for kind in ("V100", slow)]
    market = Market([Device(name=f"{kind}:{place:02}", kind=kind) for kind, place in pairs])
    kind_of = {device.name: device.kind for device in market.devices}
    now = 0.0
    while any(study.end_s is None for study in studies):
        active = [study for study in studies if study.end_s is None and study.arrival_s <= now]
        shares = policy(active, market, now)
        for study in active:
            advance(study, shares.get(study.id, ()), kind_of, (now, now + round_s), lost_s)
        now += round_s
    return fmean((study.end_s or 0.0) - study.arrival_s for study in studies)


def advance(
    study: PlayedStudy,
    devices: tuple[str, ...],
    kind_of: Mapping[str, str],
    round_s: tuple[float, float],
    lost_s: float,
) -> None:
    """Train for a round on some devices, a trial on each; what has most left has the fastest that is free."""
    now, until_s = round_s
    held, study.devices = set(study.devices), devices
    free = [(now + (0.0 if name in held else lost_s), -study.rates[kind_of[name]]) for name in devices]
    while free and study.end_s is None:
        begin_s = min(free)[0]
        if begin_s >= until_s:
            return
        free, study.trials = train_stage(sorted(free), sorted(study.trials, reverse=True), until_s)
        if study.trials:
            return
        study.stages.pop(0)
        end_s = max(time_s for time_s, _ in free)
        free = [(end_s, rate) for _, rate in free]  # a stage begins when the last trial of the one before has ended
        if study.stages:
            study.begin_stage()
        else:
            study.end_s = end_s


def train_stage(
    free: list[tuple[float, float]], trials: list[float], until_s: float
) -> tuple[list[tuple[float, float]], list[float]]:
    """Train trials until then; return when each device is free again, and what is left of trials."""
    heapify(free)
    done: list[tuple[float, float]] = []
    left: list[float] = []
    for place, seconds in enumerate(trials):
        if not free:
            return done, left + trials[place:]
        time_s, rate = heappop(free)
        end_s = time_s - seconds / rate
        if end_s <= until_s:
            heappush(free, (end_s, rate))
        else:
            left.append(seconds + max(until_s - time_s, 0.0) * rate)
            done.append((max(until_s, time_s), rate))
    return [*free, *done], left


def share_in_order(active: Sequence[PlayedStudy], market: Market, now: float) -> dict[str, tuple[str, ...]]:
    """Have each study take what it can use when it comes and keep it; devices are all the same to it."""
    free = [device.name for device in market.devices]
    shares = {}
    for study in active:
        shares[study.id] = study.devices[: study.num_wanted]
        free = [name for name in free if name not in set(shares[study.id])]
    for study in sorted(active, key=lambda one: one.arrival_s):
        num_more = study.num_wanted - len(shares[study.id])
        shares[study.id] += tuple(free[:num_more])
        free = free[num_more:]
    return shares


def share_fairly(active: Sequence[PlayedStudy], market: Market, now: float) -> dict[str, tuple[str, ...]]:
    """Give each study's user a fair share, by `share_devices`."""
    users = [User(name=study.id) for study in active]
    return share_devices(users, [describe(study) for study in active], market.devices, now)


def share_by_gavel(active: Sequence[PlayedStudy], market: Market, now: float) -> dict[str, tuple[str, ...]]:
    """Follow Gavel's max-min programme in rounds: who is furthest behind his share of a kind has it next."""
    best = share_kinds([contend(study) for study in active], market.counts)
    wanted = {study.id: study.num_wanted for study in active}
    kinds = {study.id: Counter[str]() for study in active}
    for kind, count in market.counts.items():
        for study in active:
            key = study.id, kind
            market.credits[key] = market.credits.get(key, 0.0) + best.shares[study.id].get(kind, 0.0)
        for _ in range(count):
            behind = [(market.credits[one.id, kind], one.id) for one in active if wanted[one.id] > 0]
            credit, first = max(behind, default=(0.0, ""))
            if credit <= 0:
                break
            kinds[first][kind] += 1
            wanted[first] -= 1
            market.credits[first, kind] -= 1.0
    return name_devices([describe(study) for study in active], kinds, market.devices)


def share_by_end(active: Sequence[PlayedStudy], market: Market, now: float) -> dict[str, tuple[str, ...]]:
    """Solve for the least total completion; what is left over goes to whoever can use it."""
    best = share_kinds([contend(study) for study in active], market.counts, Goal.SOONEST)
    kinds = {
        study.id: Counter({kind: round(share) for kind, share in best.shares[study.id].items()}) for study in active
    }
    return name_devices([describe(study) for study in active], kinds, market.devices)


POLICIES: dict[str, Policy] = {
    "fifo": share_in_order,
    "Gavel, max-min": share_by_gavel,
    "fair shares (`share_devices`)": share_fairly,
    "least total completion (`share_kinds`)": share_by_end,
}


def describe(study: PlayedStudy) -> StudyDemand:
    return StudyDemand(
        id=study.id,
        user=study.id,
        num_wanted=study.num_wanted,
        devices=study.devices,
        speeds=study.rates,
        submitted_s=study.arrival_s,
    )


def contend(study: PlayedStudy) -> Contender:
    return Contender(
        key=study.id,
        rates=study.rates,
        most_devices=float(study.num_wanted),
        work_left=study.work_left * study.misjudged,
    )


def find_bound(studies: Sequence[PlayedStudy], slow: str) -> float:
    """Return a mean completion that no policy beats: by a linear programme, or on one device as fast as all, if later.

    There, slow devices are as fast as for the study that they suit best, and the shortest that is left goes first,
    which is best on one device. Alone, a stage has the fastest devices that there are for its trials.
    """
    speed = PER_KIND * (1 + max(study.rates[slow] for study in studies))
    pooled = run_shortest([(study.arrival_s, study.work_left / speed) for study in studies])
    played = [
        BoundStudy(
            arrival_s=study.arrival_s,
            rates=study.rates,
            stages=[
                BoundStage(most_devices=count, work=count * seconds, shortest_s=time_alone(study, count, seconds, slow))
                for count, seconds in study.stages
            ],
        )
        for study in studies
    ]
    return max(coordinator_bound.find_bound(played, {"V100": PER_KIND, slow: PER_KIND}), pooled)


def time_alone(study: PlayedStudy, count: int, seconds: float, slow: str) -> float:
    rates = sorted([1.0] * PER_KIND + [study.rates[slow]] * PER_KIND, reverse=True)[:count]
    return count * seconds / sum(rates)


def run_shortest(jobs: Sequence[tuple[float, float]]) -> float:
    """Return the mean completion on one device where the shortest that is left goes first."""
    left = {place: seconds for place, (_, seconds) in enumerate(jobs)}
    now, total = 0.0, 0.0
    while left:
        ready = [place for place in left if jobs[place][0] <= now + 1e-12]
        coming = [jobs[place][0] for place in left if jobs[place][0] > now + 1e-12]
        if not ready:
            now = min(coming)
            continue
        place = min(ready, key=lambda one: left[one])
        step = min(left[place], min(coming, default=math.inf) - now)
        now += step
        left[place] -= step
        if left[place] <= 1e-9:
            total += now - jobs[place][0]
            del left[place]
    return total / len(jobs)


def measure_gap(slow: str, load: float) -> float:
    """Return the largest gap that greedy shares of such studies admit to, over both goals."""
    studies = draw_studies(Random(0), slow, load)
    counts = {"V100": PER_KIND, slow: PER_KIND}
    return max(share_kinds([contend(study) for study in studies], counts, goal, is_exact=False).gap for goal in Goal)
