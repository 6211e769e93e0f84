"""Which lanes train as one, and how many: decided by what their code has asked for and what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from headwater.plan import (
    bucket_lanes,
    choose_num_lanes,
    cut_groups,
    describe_bucket,
    halve_group,
    kind_of,
    share_lanes,
)
from headwater.plan.grouping import Key
from headwater.train.engines import LaneState
from headwater.train.profiling import MAX_LANES, measure_alone, profile_lanes
from headwater.train.running import Workshop
from headwater.train.streams import Meter
from headwater.trials import Ending, Lane, Outcome, Profile, Question, Recipe, TrialGroup

Tell: TypeAlias = Callable[[str, Sequence[Lane]], None]
"""Takes a remark, and the lanes that it is about; no lanes where it is about the study."""

NUM_LENDERS = 2
"""So many kinds of trials must have been measured before another that costs about as much goes by one of them."""
ALIKE = 2.0
"""How far apart the times of a step may be of trials that cost about the same."""
MAX_FORKS = 2
"""How often lanes that compute different answers are sorted by them and started again before they train apart."""


class Sorter:
    """Cuts lanes into groups, and learns from every ending how to cut them better for the rest of the study."""

    def __init__(
        self,
        workshop: Workshop,
        num_lanes: int | None,
        tell: Tell,
        record: Callable[[Profile], None],
        pack_of: Callable[[Lane], Hashable] = lambda lane: None,
    ) -> None:
        self.profiles: list[Profile] = []
        self._record = record
        self._workshop = self._measured = workshop
        self._num_lanes = num_lanes
        self._tell = tell
        self._recipes: dict[str, Recipe] = {}
        self._apart: str | None = None
        self._pack_of = pack_of
        self._known: dict[Key, tuple[int, Profile]] = {}
        self._num_forks: dict[int, int] = {}
        self._alone: dict[int, float | None] = {}
        self._suspects: dict[int, str] = {}
        self._acquitted: set[str] = set()

    def sort(self, lanes: Sequence[Lane], states: Mapping[int, LaneState]) -> list[TrialGroup]:
        """Cut lanes into groups that should be able to train as one."""
        self._measured = replace(self._workshop, seat=Meter())
        groups: list[TrialGroup] = []
        for bucket in self._buckets(lanes).values():
            size, question = self._size(bucket, states)
            if question is not None:
                self._learn(question, lanes)
                return self.sort(lanes, states)
            groups += cut_groups(bucket, share_lanes(len(bucket), size, self._workshop.num_workers))
        self._measured = self._workshop
        return groups

    def seconds_alone(self, lane: Lane) -> float | None:
        """Return what a step of this trial takes in a group of one, if that was measured."""
        return self._alone.get(lane.number)

    def prefers_apart(self, lane: Lane, num_lanes: int) -> bool:
        """Tell whether this many lanes of its kind train faster alone than as a group, if that was measured."""
        _, profile = self._known.get(kind_of(lane, list(self._recipes.values())), (0, None))
        if profile is None or profile.largest < 2:
            return False
        smaller = [item for item in profile.measurements if item.num_lanes <= num_lanes]
        return choose_num_lanes(smaller[:1] + smaller[-1:], shares_loading=self._workshop.shares_loading)[0] == 1

    def sort_again(
        self, ending: Ending, waiting: Sequence[TrialGroup], states: Mapping[int, LaneState]
    ) -> list[TrialGroup]:
        """Cut the lanes of a group that could not run to its end as one; return them with the groups that wait.

        What was learnt holds for those that wait too, so they are cut anew.
        """
        if ending.outcome in (Outcome.RAISED, Outcome.LOST):
            cause = ending.error.rstrip().splitlines()[-1]
            self._tell(f"their group failed and ran again in halves to find whose fault it was: {cause}", ending.lanes)
            if len(ending.lanes) == 2:
                self._suspects |= {lane.number: cause for lane in ending.lanes}
            halves = [half for lanes in self._buckets(ending.lanes).values() for half in halve_group(lanes)]
            return [*halves, *waiting]
        assert ending.question is not None
        if ending.outcome is Outcome.APART and (forked := self._fork(ending.lanes, ending.question)):
            return [*forked, *waiting]
        lanes = [*ending.lanes, *(lane for group in waiting for lane in group.lanes)]
        self._learn(ending.question, lanes, stuck=len(self._buckets(ending.lanes)) == 1)
        return self.sort(lanes, states)

    def acquit(self, lanes: Sequence[Lane]) -> None:
        """Learn that these trials came to their end; two that raised only together cannot be together."""
        for lane in lanes:
            cause = self._suspects.pop(lane.number, None)
            if cause is not None and cause in self._acquitted:
                self._learn(Question(None, f"the function raises for lanes in a group only: {cause}"), lanes)
            if cause is not None:
                self._acquitted.add(cause)

    def _buckets(self, lanes: Sequence[Lane]) -> dict[Key, list[Lane]]:
        return bucket_lanes(lanes, list(self._recipes.values()), self._pack_of)

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
        return [TrialGroup(lanes=side) for side in sorted(by_side, key=len, reverse=True)]

    def _size(self, bucket: Sequence[Lane], states: Mapping[int, LaneState]) -> tuple[int, Question | None]:
        if self._apart is not None:
            return 1, None
        if self._num_lanes is not None or len(bucket) == 1:
            return self._num_lanes or 1, None
        kind = kind_of(bucket[0], list(self._recipes.values()))
        num_asked, profile = self._known.get(kind, (0, None))
        if profile is None or (num_asked < min(len(bucket), MAX_LANES) and profile.largest == num_asked):
            saved = [states[lane.number] for lane in bucket] if bucket[0].start_epoch else None
            profile, question = self._borrow(bucket, saved), None
            if profile is None:
                profile, question = self._profile(bucket, saved)
            if question is not None:
                return 1, question
            self._known[kind] = min(len(bucket), MAX_LANES), profile
        self._alone |= {lane.number: profile.seconds_alone for lane in bucket}
        smaller = [item for item in profile.measurements if item.num_lanes <= len(bucket)]
        size, _ = choose_num_lanes(
            smaller, shares_loading=self._workshop.shares_loading, num_workers=self._workshop.num_workers
        )
        return min(profile.num_lanes, size), None

    def _profile(self, bucket: Sequence[Lane], states: Sequence[LaneState] | None) -> tuple[Profile, Question | None]:
        """Measure a bucket; where some of its lanes raise, the rest tells how many pay."""
        profile, ending = profile_lanes(self._measured, bucket, states)
        if ending is not None and ending.question is not None:
            return profile, ending.question
        raised = {lane.number for lane in ending.lanes} if ending is not None else set()
        sound = [place for place, lane in enumerate(bucket) if lane.number not in raised]
        if raised and len(sound) > 1:
            saved = None if states is None else [states[place] for place in sound]
            return self._profile([bucket[place] for place in sound], saved)
        self._note(profile, bucket[0])
        return profile, None

    def _borrow(self, bucket: Sequence[Lane], states: Sequence[LaneState] | None) -> Profile | None:
        """Go by the profile of another kind, where several had such sizes and cost about the same alone."""
        size = min(len(bucket), MAX_LANES)
        others = [
            profile
            for asked, profile in self._known.values()
            if profile.measurements and (asked >= size or profile.largest < asked)
        ]
        if len(others) < NUM_LENDERS or (alone := measure_alone(self._measured, bucket, states)) is None:
            return None
        ratios = [abs(math.log(alone.computing_s / profile.measurements[0].computing_s)) for profile in others]
        near = [(ratio, place) for place, ratio in enumerate(ratios) if ratio < math.log(ALIKE)]
        return others[min(near)[1]] if len(near) >= NUM_LENDERS else None

    def _note(self, profile: Profile, lane: Lane) -> None:
        label = describe_bucket(lane, list(self._recipes.values()))
        self.profiles.append(replace(profile, label=label))
        self._record(self.profiles[-1])
        lanes = "1 lane" if profile.num_lanes == 1 else f"{profile.num_lanes} lanes"
        self._tell(f"{lanes} in a group ({label}): {profile.reason}", ())
