"""Opening trials: from what the searcher proposes to lanes that can train, recorded before they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwater.errors import StoreError
from headwater.store import Recorder, StateFiles
from headwater.trials import Lane, Segment, TrialRecord

COPY = "copy: "
"""Begins the key of the fact that says which trial, at which epoch, a trial is a copy of."""


class TrialOpener:
    """Makes lanes of segments: new trials from the start or from a parent's state, known ones from their own.

    A trial whose state is missing, damaged or not the one that the record knows of starts again, and it is told.
    """

    def __init__(
        self,
        recorder: Recorder,
        states: StateFiles,
        tell: Callable[[str], None],
        epochs: Mapping[int, int],
        known: Sequence[TrialRecord] = (),
    ) -> None:
        self._recorder = recorder
        self._states = states
        self._tell = tell
        self._epochs = epochs
        self._recorded = {record.number for record in known}
        self._under_way = {record.number for record in known if record.history}
        facts = recorder.store.facts(recorder.info.id) if known else {}
        self._copied = {key: fact for key, fact in facts.items() if key.startswith(COPY)}

    def open(self, segments: Sequence[Segment]) -> list[Lane]:
        """Return a lane for each segment, and record those that are new."""
        lanes = [
            Lane(
                number=segment.number,
                config=segment.config,
                seed=self._seed_of(segment.number),
                until=segment.until,
                start_epoch=self._find_start(segment),
            )
            for segment in segments
        ]
        fresh = [lane for lane in lanes if lane.number not in self._recorded]
        self._recorder.add(fresh)
        self._recorded |= {lane.number for lane in fresh}
        return lanes

    def reopen(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that were lost on the way as they can go on: from their last states, or from the beginning."""
        return [replace(lane, start_epoch=self._find_last(lane)) for lane in lanes]

    def _find_last(self, lane: Lane) -> int:
        try:
            return self._states.find_epoch(lane.number, max(self._epochs.get(lane.number, 0), lane.start_epoch))
        except StoreError:
            return 0

    def _find_start(self, segment: Segment) -> int:
        """Return the epoch that a trial goes on from, its parent's state being its own by then."""
        number = segment.number
        parent, since = self._find_origin(segment)
        is_expected = number in self._under_way or number in self._states
        self._under_way.discard(number)
        if not is_expected and parent is None:
            return 0
        try:
            if not is_expected and parent is not None:
                return self._inherit(number, parent, since)
            return self._states.find_epoch(number, max(self._epochs.get(number, 0), since))
        except StoreError as error:
            self._states.drop(number)
            return self._start_again(number, parent, since, error)

    def _start_again(self, number: int, parent: int | None, since: int, reason: StoreError) -> int:
        """Take the parent's state once more where it is still the same, or none."""
        try:
            if parent is not None and number in self._recorded:
                return self._inherit(number, parent, since)
        except StoreError as error:
            reason = error
        self._tell(f"trial {number} starts again from the beginning: {reason}")
        return 0

    def _inherit(self, number: int, parent: int, since: int) -> int:
        """Give a trial the state that its parent had at the epoch of the copy, and no other."""
        self._states.inherit(number, parent, since)
        return since

    def _find_origin(self, segment: Segment) -> tuple[int | None, int]:
        """Return which trial a segment's is a copy of, and its epoch then; recorded when it is copied."""
        key = f"{COPY}{segment.number}"
        if segment.parent is None and key not in self._copied:
            return None, 0
        if key not in self._copied:
            origin = {"parent": segment.parent, "epoch": self._epochs.get(segment.parent or 0, 0)}
            if segment.number in self._recorded:
                origin["epoch"] = -1  # by a version that did not record it: no state is known to be the right one
            self._copied[key] = origin
            self._recorder.add_fact(key, origin)
        return self._copied[key]["parent"], self._copied[key]["epoch"]

    def _seed_of(self, number: int) -> int:
        """Return what a trial's function starts with: the study's seed, or one of several, by replica."""
        info = self._recorder.info
        return info.seed + number % info.num_seeds
