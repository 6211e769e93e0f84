"""Writing one study's record: configurations encoded, one transaction per event of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headwater.space import Space
from headwater.store.store import Store
from headwater.store.values import Batch, NewTrial, Note, StudyInfo, Transition
from headwater.trials import Lane, Profile, Report, TrialRecord


class Recorder:
    """The store as one study sees it."""

    def __init__(self, store: Store, info: StudyInfo, space: Space) -> None:
        self.info = info
        self._store = store
        self._space = space

    def add(self, lanes: Sequence[Lane]) -> None:
        """Record trials that are about to start."""
        rows = [NewTrial(number=lane.number, config=self._space.encode(lane.config), seed=lane.seed) for lane in lanes]
        self._store.add_trials(self.info.id, rows)

    def write(self, reports: Sequence[Report] = (), transitions: Sequence[Transition] = ()) -> None:
        """Record what a group reported and what became of its trials."""
        if reports or transitions:
            self._store.write(self.info.id, Batch(reports=tuple(reports), transitions=tuple(transitions)))

    def note(self, kind: str, text: str, lanes: Sequence[Lane] = ()) -> None:
        """Record a remark on these trials, or on the study."""
        notes = [Note(kind=kind, text=text, number=lane.number) for lane in lanes] or [Note(kind=kind, text=text)]
        self._store.write(self.info.id, Batch(notes=tuple(notes)))

    def add_profile(self, label: str, profile: Profile) -> None:
        """Record how many lanes were chosen for the trials that `label` describes, and why."""
        self._store.add_fact(self.info.id, f"lanes: {label}", asdict(profile))

    def trials(self) -> tuple[TrialRecord, ...]:
        """Read every trial back."""
        return tuple(self._store.trials(self.info.id, self._space.decode))
