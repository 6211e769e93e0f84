"""Which lanes train as one, and how many: decided by what their code has asked for and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from headwater.plan import bucket_lanes, cut_groups, describe_bucket, halve_group
from headwater.plan.grouping import Key
from headwater.train.engines import LaneState
from headwater.train.profiling import profile_lanes
from headwater.train.running import Workshop
from headwater.trials import Ending, Lane, Outcome, Profile, Question, Recipe, TrialGroup

Tell: TypeAlias = Callable[[str, Sequence[Lane]], None]
"""Takes a remark, and the lanes that it is about; no lanes where it is about the study."""

MAX_FORKS = 2
"""How often lanes that compute different answers are sorted by them and started again before they train apart."""


class Sorter:
    """Cuts lanes into groups, and learns from every ending how to cut them better for the rest of the study."""

    def __init__(
        self, workshop: Workshop, num_lanes: int | None, tell: Tell, record: Callable[[Profile], None]
    ) -> None:
        self.profiles: list[Profile] = []
        self._record = record
        self._workshop = workshop
        self._num_lanes = num_lanes
        self._tell = tell
        self._recipes: dict[str, Recipe] = {}
        self._apart: str | None = None
        self._sizes: dict[Key, int] = {}
        self._num_forks: dict[int, int] = {}
        self._alone: dict[int, float | None] = {}
        self._suspects: dict[int, str] = {}
        self._acquitted: set[str] = set()

    def sort(self, lanes: Sequence[Lane], states: Mapping[int, LaneState]) -> list[TrialGroup]:
        """Cut lanes into groups that should be able to train as one."""
        groups: list[TrialGroup] = []
        for key, bucket in self._buckets(lanes).items():
            size, question = self._size(key, bucket, states)
            if question is not None:
                self._learn(question, lanes)
                return self.sort(lanes, states)
            groups += cut_groups(bucket, size)
        return groups

    def seconds_alone(self, lane: Lane) -> float | None:
        """Return what a step of this trial takes in a group of one, if that was measured."""
        return self._alone.get(lane.number)

    def sort_again(
        self, ending: Ending, waiting: Sequence[TrialGroup], states: Mapping[int, LaneState]
    ) -> list[TrialGroup]:
        """Cut the lanes of a group that could not run to its end as one; return them with the groups that wait.

        What was learnt holds for those that wait too, so they are cut anew.
        """
        if ending.outcome is Outcome.RAISED:
            cause = ending.error.rstrip().splitlines()[-1]
            self._tell(f"their group raised and ran again in halves to find whose fault it was: {cause}", ending.lanes)
            if len(ending.lanes) == 2:
                self._suspects |= {lane.number: cause for lane in ending.lanes}
            return [*halve_group(ending.lanes), *waiting]
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
        return bucket_lanes(lanes, list(self._recipes.values()))

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

    def _size(self, key: Key, bucket: Sequence[Lane], states: Mapping[int, LaneState]) -> tuple[int, Question | None]:
        if self._apart is not None:
            return 1, None
        if self._num_lanes is not None or len(bucket) == 1:
            return self._num_lanes or 1, None
        if key not in self._sizes:
            saved = [states[lane.number] for lane in bucket] if bucket[0].start_epoch else None
            profile, ending = profile_lanes(self._workshop, bucket, saved)
            if ending is not None and ending.question is not None:
                return 1, ending.question
            self._sizes[key] = profile.num_lanes
            self._alone |= {lane.number: profile.seconds_alone for lane in bucket}
            label = describe_bucket(bucket[0], list(self._recipes.values()))
            profile = replace(profile, label=label)
            self.profiles.append(profile)
            self._record(profile)
            lanes = "1 lane" if profile.num_lanes == 1 else f"{profile.num_lanes} lanes"
            self._tell(f"{lanes} in a group ({label}): {profile.reason}", ())
        return self._sizes[key], None
