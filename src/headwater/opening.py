"""Opening trials: from what the searcher proposes to lanes that can train, recorded before they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.store import Recorder
from headwater.trials import Lane, Segment, TrialRecord

if TYPE_CHECKING:
    from headwater.train.shelf import Shelf


class TrialOpener:
    """Makes lanes of segments: new trials from the start or from a parent's state, known ones from their own."""

    def __init__(
        self, recorder: Recorder, shelf: Shelf, tell: Callable[[str], None], known: Sequence[TrialRecord] = ()
    ) -> None:
        self._recorder = recorder
        self._shelf = shelf
        self._tell = tell
        self._recorded = {record.number for record in known}

    def open(self, segments: Sequence[Segment]) -> list[Lane]:
        """Return a lane for each segment, and record those that are new."""
        for segment in segments:
            self._inherit(segment)
        lanes = [
            Lane(
                number=segment.number,
                config=segment.config,
                seed=self._seed_of(segment.number),
                until=segment.until,
                start_epoch=self._shelf.find_start(segment.number, self._tell),
            )
            for segment in segments
        ]
        fresh = [lane for lane in lanes if lane.number not in self._recorded]
        self._recorder.add(fresh)
        self._recorded |= {lane.number for lane in fresh}
        return lanes

    def _inherit(self, segment: Segment) -> None:
        """Give a new trial its parent's state."""
        shelf = self._shelf
        if segment.parent is not None and segment.number not in shelf and segment.parent in shelf:
            shelf.put(segment.number, replace(shelf[segment.parent], is_inherited=True))

    def _seed_of(self, number: int) -> int:
        """Return what a trial's function starts with: the study's seed, or one of several, by replica."""
        info = self._recorder.info
        return info.seed + number % info.num_seeds
