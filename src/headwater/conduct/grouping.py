"""Which lanes train as one, and how many: decided by what their code has asked for and what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from headwater.plan import (
    USUAL_LANES,
    bucket_lanes,
    choose_num_lanes,
    count_wanted,
    cut_alike,
    cut_groups,
    describe_bucket,
    halve_group,
    kind_of,
    know_sizes,
    share_lanes,
)
from headwater.plan.buckets import Bucket, choose_cuts
from headwater.plan.grouping import Key
from headwater.plan.surface import Surface
from headwater.trials import (
    ChosenWay,
    Ending,
    KindProfile,
    Lane,
    Learnt,
    Measurement,
    Outcome,
    Profile,
    Purpose,
    Question,
    Recipe,
    TrialGroup,
)

Tell: TypeAlias = Callable[[str, Sequence[Lane]], None]
"""Takes a remark, and the lanes that it is about; no lanes where it is about the study."""

NUM_LENDERS = 2
"""So many kinds of trials must have been measured before another that costs about as much goes by one of them."""
ALIKE = 2.0
"""How far apart the times of a step may be of trials that cost about the same."""
MOST_BESIDE = 4
"""How many times as large as the largest group that was tried one may be with lanes of other studies."""
MAX_FORKS = 2
"""How often lanes that compute different answers are sorted by them and started again before they train apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a device is to do: train groups, or measure one before lanes of its kind are cut into groups."""

    purpose: Purpose
    groups: tuple[TrialGroup, ...]
    kind: Key | None = None
    """The kind of the lanes that wait for what is measured; None where none do."""
    waiting: tuple[Lane, ...] = ()
    """These lanes."""


class Grouper:
    """Cuts lanes into groups, and learns from every ending how to cut them better for the rest of the study."""

    def __init__(
        self,
        num_lanes: int | None,
        tell: Tell,
        record: Callable[[Profile], None],
        *,
        shares_loading: bool = False,
        pack_of: Callable[[Lane], Hashable] = lambda lane: None,
        learnt: Learnt | None = None,
    ) -> None:
        learnt = learnt or Learnt()
        self.profiles: list[Profile] = [item.profile for item in learnt.profiles]
        self.count_beside: Callable[[], int] = lambda: 0
        """Says how many lanes of other studies wait that may come along in a group."""
        self._num_lanes = num_lanes
        self._tell = tell
        self._record = record
        self._num_devices = 1
        self._surface: Surface | None = None
        self._shares_loading = shares_loading
        self._pack_of = pack_of
        self._recipes: dict[str, Recipe] = {recipe.label: recipe for recipe in learnt.recipes}
        self._apart = learnt.apart
        self._known: dict[Key, tuple[int, Profile]] = {
            item.kind: (item.num_asked, item.profile) for item in learnt.profiles
        }
        self._ways = {(way.key, way.magnitude): way for way in learnt.strategies}
        self._alone: dict[Key, Measurement | None] = {}
        self._unsound: set[int] = set()
        self._num_forks: dict[int, int] = {}
        self._seconds_alone: dict[int, float | None] = {}
        self._suspects: dict[int, str] = {}
        self._acquitted: set[str] = set()
        self._too_large: list[tuple[Key, frozenset[int]]] = []
        """The groups that ran out of memory: the kind of their trials, and which these were."""

    def sort(self, lanes: Sequence[Lane]) -> tuple[list[TrialGroup], list[Work]]:
        """Cut lanes into groups, as far as it is known how large these should be; say what to measure for the rest."""
        known: list[tuple[Sequence[Lane], int]] = []
        unknown: list[Work] = []
        for bucket in self._buckets(lanes).values():
            kind = self.kind_of(bucket[0])
            purpose = self._find_unknown(kind, bucket)
            if purpose is None:
                known.append((bucket, int(min(self._size(kind, bucket), self._find_limit(kind)))))
            else:
                sound = TrialGroup(lanes=self._find_sound(bucket))
                unknown.append(Work(purpose=purpose, groups=(sound,), kind=kind, waiting=tuple(bucket)))
        return self._cut(known), unknown

    def share_among(self, num_devices: int) -> None:
        """Have groups no larger than all of so many devices can have a share of the lanes that wait."""
        self._num_devices = num_devices

    def time_by(self, surface: Surface) -> None:
        """Have devices divided among kinds of lanes, and the longest groups go first, by what this knows."""
        self._surface = surface

    @property
    def learnt(self) -> Learnt:
        """What later runs may go by: what parts lanes, how many pay, and which ways to compute them are fastest."""
        return Learnt(
            recipes=tuple(self._recipes.values()),
            apart=self._apart,
            profiles=tuple(
                KindProfile(kind=kind, num_asked=num_asked, profile=profile)
                for kind, (num_asked, profile) in self._known.items()
                if len(kind) == len(self._recipes) and not profile.is_cut
            ),
            strategies=tuple(self._ways.values()),
        )

    def adopt(self, learnt: Learnt) -> bool:
        """Take over what another study of the same function has learnt; tell whether both part lanes alike, so far."""
        labels = [recipe.label for recipe in learnt.recipes]
        if labels[: len(self._recipes)] != list(self._recipes):
            return False
        self._recipes = {recipe.label: recipe for recipe in learnt.recipes}
        self._apart = self._apart or learnt.apart
        for item in learnt.profiles:
            if item.num_asked > self._known.get(item.kind, (0, None))[0]:
                self._known[item.kind] = item.num_asked, item.profile
                self.profiles.append(item.profile)
        self.take_ways(learnt.strategies)
        return True

    def count_most(self, lane: Lane) -> int:
        """Return how many lanes like this one a group may have, as far as that is known.

        Where the largest size that was tried is the best, more are taken for better: there were no more to try.
        """
        if self._apart is not None or lane.number in self._suspects:
            return 1
        kind = self.kind_of(lane)
        _, profile = self._known.get(kind, (0, None))
        most = self._num_lanes or (1 if profile is None else profile.num_lanes)
        if self._num_lanes is None and profile is not None and 1 < most >= profile.largest:
            most = max(most, min(MOST_BESIDE * most, USUAL_LANES))
        return int(min(most, self._find_limit(kind)))

    def take_ways(self, ways: Sequence[ChosenWay]) -> None:
        """Learn which ways of computing were fastest."""
        self._ways |= {(way.key, way.magnitude): way for way in ways}

    def take_profile(self, work: Work, profile: Profile, ending: Ending | None) -> None:
        """Learn how many lanes of a kind pay; where a group could not be measured, why, or without whom it could."""
        if ending is not None and ending.question is not None:
            self._learn(ending.question, work.waiting)
            return
        has_raised = ending is not None and ending.outcome is Outcome.RAISED
        raised = {lane.number for lane in ending.lanes} if ending is not None and has_raised else set()
        if raised and sum(lane.number not in self._unsound | raised for lane in work.waiting) > 1:
            self._unsound |= raised  # the rest tells how many pay
            return
        label = describe_bucket(work.waiting[0], list(self._recipes.values()))
        profile = replace(profile, label=label)
        self.profiles.append(profile)
        self._record(profile)
        lanes = "1 lane" if profile.num_lanes == 1 else f"{profile.num_lanes} lanes"
        self._tell(f"{lanes} in a group ({label}): {profile.reason}", ())
        assert work.kind is not None
        self._known[work.kind] = count_wanted(len(work.waiting)), profile

    def take_alone(self, work: Work, measurement: Measurement | None) -> None:
        """Learn what a step of one trial of a kind costs, and go by another kind's profile where that cost the same."""
        assert work.kind is not None
        self._alone[work.kind] = measurement
        num_wanted = count_wanted(len(work.waiting))
        borrowed = None if measurement is None else self._borrow(num_wanted, measurement)
        if borrowed is not None:
            self._known[work.kind] = num_wanted, borrowed

    def seconds_alone(self, lane: Lane) -> float | None:
        """Return what a step of this trial takes in a group of one, if that was measured."""
        return self._seconds_alone.get(lane.number)

    def time_steps(self, lane: Lane) -> dict[int, float]:
        """Return what a step of a group of this kind takes by its number of lanes, as far as that was measured."""
        measured = self.measurements_of(lane)
        return {item.num_lanes: item.num_lanes * item.seconds_per_lane_step for item in measured}

    def measurements_of(self, lane: Lane) -> Sequence[Measurement]:
        """Return what was measured of groups of this kind."""
        _, profile = self._known.get(self.kind_of(lane), (0, None))
        return () if profile is None else profile.measurements

    def find_loading_share(self, group: TrialGroup) -> float | None:
        """Return how much of a step of this group is loading, as far as such were measured; None: nobody knows."""
        known = know_sizes(self.measurements_of(group.lanes[0]), len(group))
        if not known:
            return None
        *_, last = known
        return last.loading_s / max(last.num_lanes * last.seconds_per_lane_step, 1e-9)

    def prefers_apart(self, lanes: Sequence[Lane]) -> bool:
        """Tell whether lanes of a kind that all pause anyway train faster alone than as one, as far as was measured."""
        _, profile = self._known.get(self.kind_of(lanes[0]), (0, None))
        if profile is None or profile.largest < 2 or any(lane.until is None for lane in lanes):
            return False
        known = know_sizes(profile.measurements, len(lanes))
        return choose_num_lanes(known[:1] + known[-1:], shares_loading=self._shares_loading)[0] == 1

    def part(self, ending: Ending) -> list[TrialGroup]:
        """Learn from a group that could not run to its end as one; return its lanes as groups that are to stay so.

        Where there are none, they are to be sorted anew, with all that wait: what was learnt holds for those too.
        """
        has_raised = ending.outcome is Outcome.RAISED
        if ending.outcome is Outcome.OUT_OF_MEMORY and len(ending.lanes) > 1:
            return self._shrink(ending.lanes)
        if has_raised or ending.outcome is Outcome.OUT_OF_MEMORY:
            cause = ending.error.rstrip().splitlines()[-1]
            halves = "in halves to find whose fault it was" if len(ending.lanes) > 1 else "alone, as the last of it"
            self._tell(f"their group failed and ran again {halves}: {cause}", ending.lanes)
            if has_raised and len(ending.lanes) <= 2:
                self._suspects |= {lane.number: cause for lane in ending.lanes}
            return [half for group in cut_alike(ending.lanes) for half in halve_group(group.lanes)]
        assert ending.question is not None
        if ending.outcome is Outcome.APART and (forked := self._fork(ending.lanes, ending.question)):
            return forked
        self._learn(ending.question, ending.lanes, stuck=len(self._buckets(ending.lanes)) == 1)
        return []

    def excuse(self, lane: Lane) -> None:
        """Learn that a trial ran out of memory even alone: its groups may have been small enough."""
        self._too_large = [(kind, numbers) for kind, numbers in self._too_large if lane.number not in numbers]

    def acquit(self, lanes: Sequence[Lane]) -> None:
        """Learn that these trials came to their end; two that raised only together cannot be together."""
        for lane in lanes:
            cause = self._suspects.pop(lane.number, None)
            if cause is not None and cause in self._acquitted:
                self._learn(Question(None, f"the function raises for lanes in a group only: {cause}"), lanes)
            if cause is not None:
                self._acquitted.add(cause)

    def _cut(self, buckets: Sequence[tuple[Sequence[Lane], int]]) -> list[TrialGroup]:
        """Cut buckets into groups, each of so many lanes at most; what nobody can time comes before what takes long."""
        kinds = [self.kind_of(lanes[0]) for lanes, _ in buckets]
        num_devices = self._num_devices
        if len(set(kinds)) < 2:
            parts = [cut_groups(lanes, share_lanes(len(lanes), size, num_devices)) for lanes, size in buckets]
            return [group for part in parts for group in part]
        timed = [
            Bucket(num_lanes=len(lanes), most_lanes=size, seconds=partial(self._time_group, lanes[0], kind))
            for (lanes, size), kind in zip(buckets, kinds, strict=True)
        ]
        groups: list[tuple[float, TrialGroup]] = []
        for (lanes, size), bucket, share in zip(buckets, timed, choose_cuts(timed, num_devices), strict=True):
            cut = cut_groups(lanes, share_lanes(len(lanes), size, share))
            groups += zip(bucket.time_groups(share), cut, strict=True)
        return [group for _, group in sorted(groups, key=lambda pair: -pair[0])]

    def _time_group(self, lane: Lane, kind: Key, num_lanes: int) -> float:
        """Return how long a group of so many lanes like this one trains on one device; inf: nobody knows."""
        end = None if self._surface is None else lane.until or self._surface.num_epochs
        if self._surface is None or end is None:
            return math.inf
        return max(end - lane.start_epoch, 1) * self._surface.time_epoch(kind, num_lanes)

    def _shrink(self, lanes: Sequence[Lane]) -> list[TrialGroup]:
        """Cut a group that ran out of memory in halves, and have those of its kind no larger from now on."""
        kind = self.kind_of(lanes[0])
        self._too_large.append((kind, frozenset(lane.number for lane in lanes)))
        limit = int(self._find_limit(kind))
        label = describe_bucket(lanes[0], list(self._recipes.values()))
        self._tell(f"{len(lanes)} lanes in a group ran out of memory; at most {limit} from now on ({label})", lanes)
        return [part for group in cut_alike(lanes) for part in cut_groups(group.lanes, limit)]

    def _find_limit(self, kind: Key) -> float:
        """Return how many lanes of a kind may share a group: half of those that were too many.

        What lanes part by only ever grows, so a kind begins with what it was known by before.
        """
        sizes = [len(numbers) for known, numbers in self._too_large if kind[: len(known)] == known]
        return min(((size + 1) // 2 for size in sizes), default=math.inf)

    def _buckets(self, lanes: Sequence[Lane]) -> dict[Key, list[Lane]]:
        return bucket_lanes(lanes, list(self._recipes.values()), self._pack_of)

    def kind_of(self, lane: Lane) -> Key:
        """Return what kind of trial a lane trains: those of one kind cost the same."""
        return kind_of(lane, list(self._recipes.values())) if self._recipes else ()

    def _learn(self, question: Question, lanes: Sequence[Lane], stuck: bool = True) -> None:
        """Remember what parts lanes; lanes that are stuck, for what they agree on parts them still, train apart."""
        recipe = question.recipe
        if recipe is not None and recipe.label not in self._recipes:
            self._recipes[recipe.label] = recipe
            self._tell(f"lanes part by `{recipe.label}`: {question.reason}", lanes)
        elif stuck and self._apart is None:
            self._apart = question.reason
            self._tell(f"lanes train apart: {question.reason}", lanes)

    def _fork(self, lanes: Sequence[Lane], question: Question) -> list[TrialGroup]:
        """Where lanes computed one of two answers, start both sides again as groups of their own, a few times."""
        sides = set(question.answers)
        if len(sides) != 2 or any(self._num_forks.get(lane.number, 0) >= MAX_FORKS for lane in lanes):
            return []
        for lane in lanes:
            self._num_forks[lane.number] = self._num_forks.get(lane.number, 0) + 1
        self._tell(f"lanes part by what they computed: {question.reason}", lanes)
        by_side = [
            tuple(lane for lane, answer in zip(lanes, question.answers, strict=True) if answer == side)
            for side in sides
        ]
        return [group for side in sorted(by_side, key=len, reverse=True) for group in cut_alike(side)]

    def _find_unknown(self, kind: Key, bucket: Sequence[Lane]) -> Purpose | None:
        """Return what is to be measured before these lanes can be cut into groups; None where nothing is."""
        if self._apart is not None or self._num_lanes is not None or len(self._find_sound(bucket)) < 2:
            return None
        num_asked, profile = self._known.get(kind, (0, None))
        num_wanted = count_wanted(len(bucket))
        is_foreseen = profile is not None and profile.num_lanes > profile.largest  # for as many lanes as there were
        if profile is not None and (num_asked >= num_wanted or (profile.largest < num_asked and not is_foreseen)):
            return None
        is_lent = len(self._lenders(num_wanted)) >= NUM_LENDERS
        return Purpose.ALONE if is_lent and kind not in self._alone else Purpose.PROFILE

    def _find_sound(self, lanes: Sequence[Lane]) -> tuple[Lane, ...]:
        """Return those of the lanes that can be measured: the others raise."""
        return tuple(lane for lane in lanes if lane.number not in self._unsound)

    def _size(self, kind: Key, bucket: Sequence[Lane]) -> int:
        if self._apart is not None:
            return 1
        if self._num_lanes is not None or len(bucket) == 1 or kind not in self._known:
            return self._num_lanes or 1
        profile = self._known[kind][1]
        self._seconds_alone |= {lane.number: profile.seconds_alone for lane in bucket}
        if profile.num_lanes > profile.largest:  # more lanes than were measured are taken for better
            return min(profile.num_lanes, len(bucket))
        num_lanes = len(bucket) + self.count_beside()
        known = know_sizes(profile.measurements, num_lanes)
        size, _ = choose_num_lanes(known, shares_loading=self._shares_loading, num_workers=self._num_devices)
        return min(profile.num_lanes, size)

    def _lenders(self, num_lanes: int) -> list[Profile]:
        """Return the profiles of kinds that had such sizes."""
        return [
            profile
            for asked, profile in self._known.values()
            if profile.measurements and (asked >= num_lanes or profile.largest < asked)
        ]

    def _borrow(self, num_wanted: int, alone: Measurement) -> Profile | None:
        """Return the profile of another kind, where several cost about the same alone."""
        others = self._lenders(num_wanted)
        ratios = [abs(math.log(alone.computing_s / profile.measurements[0].computing_s)) for profile in others]
        near = [(ratio, place) for place, ratio in enumerate(ratios) if ratio < math.log(ALIKE)]
        return others[min(near)[1]] if len(near) >= NUM_LENDERS else None
