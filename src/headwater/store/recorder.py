"""Writing one study's record: one transaction per event of a group, or in memory for all until somebody reads.

A configuration is stored twice: as codes, which the space turns back into the very values, and as a reader without the
space can be shown it. With it go the domains that conditions chose for it, which the study's own description lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from headwater.space import Config, Domain, Space
from headwater.store.encoding import encode_json
from headwater.store.leases import Lease
from headwater.store.store import Store
from headwater.store.values import ATTRIBUTE, Batch, Note, StudyInfo, Transition
from headwater.trials import Arrival, Lane, Profile, Report, Span, TrialRecord


class Recorder:
    """The store as one study sees it."""

    def __init__(self, store: Store, info: StudyInfo, space: Space, lease: Lease | None = None) -> None:
        self.info = info
        self.store = store
        self.lease = lease
        self._space = space
        self._spans: list[Span] = []

    def add(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Record trials that are about to start; return them with the codes of their configurations."""
        coded = [replace(lane, codes=self._space.encode(lane.config)) for lane in lanes]
        stored = [replace(lane, config=self._store_config(lane)) for lane in coded]
        if stored:
            self.store.add_trials(self.info.id, stored, fence=self._fence)
        return coded

    def write(self, reports: Sequence[Report] = (), transitions: Sequence[Transition] = ()) -> None:
        """Record what a group reported and what became of its trials."""
        noted = {report.number: report.attributes for report in reports if report.attributes}
        if reports or transitions:
            self._write(tuple(reports), tuple(transitions), _write_attributes(noted))

    def write_attributes(self, noted: Mapping[int, Mapping[str, Any]]) -> None:  # Any: JSON values
        """Record what functions have noted of trials."""
        if noted:
            self._write(notes=_write_attributes(noted))

    def add_span(self, span: Span) -> None:
        """Record who sat on a device, together with what is written next."""
        self._spans.append(span)

    def flush(self) -> None:
        """Write what waits to be written together with something else."""
        if self._spans:
            self._write()

    def note(self, kind: str, text: str, lanes: Sequence[Lane] = ()) -> None:
        """Record a remark on these trials, or on the study."""
        notes = [Note(kind=kind, text=text, number=lane.number) for lane in lanes] or [Note(kind=kind, text=text)]
        self._write(notes=tuple(notes))

    def add_profile(self, profile: Profile) -> None:
        """Record how many lanes were chosen for some of the trials, and why."""
        self.add_fact(f"lanes: {profile.label}", asdict(profile))

    def add_fact(self, key: str, value: Any) -> None:  # Any: a JSON value
        """Record a measurement."""
        self.store.add_fact(self.info.id, key, value, fence=self._fence)

    def trials(self) -> tuple[TrialRecord, ...]:
        """Read every trial back."""
        return tuple(self.store.trials(self.info.id, lambda stored: self._space.decode(stored["codes"])))

    def arrivals(self) -> tuple[Arrival, ...]:
        """Read back where segments ended, in the order in which the searcher was told."""
        return tuple(self.store.arrivals(self.info.id))

    def _write(
        self,
        reports: tuple[Report, ...] = (),
        transitions: tuple[Transition, ...] = (),
        notes: tuple[Note, ...] = (),
    ) -> None:
        batch = Batch(reports=reports, transitions=transitions, notes=notes, spans=tuple(self._spans))
        self._spans = []
        if self.store.is_shared:
            self.store.write(self.info.id, batch, fence=self._fence)
        else:
            self.store.write_late(self.info.id, batch)

    @property
    def _fence(self) -> int | None:
        """What shows that the study is still this run's; in memory nobody else could have it."""
        return None if self.lease is None else self.lease.fence

    def _store_config(self, lane: Lane) -> dict[str, Any]:  # Any: JSON values
        stored: dict[str, Any] = {"codes": lane.codes, "shown": self._space.show(lane.config)}
        chosen = self._list_chosen(lane.config) if lane.codes.keys() - self._space.domains.keys() else {}
        return {**stored, "domains": chosen} if chosen else stored

    def _list_chosen(self, config: Config) -> dict[str, dict[str, Any]]:  # Any: JSON values
        """Return the domains that conditions chose, described as `Space.describe` does."""
        values = self._space.flatten(config)
        chosen: dict[str, dict[str, Any]] = {}

        def note(key: str, domain: Domain) -> Any:  # Any: as for Config
            if key not in self._space.domains:
                chosen[key] = {"text": str(domain), "num_values": domain.num_values()}
            return values[key]

        self._space.resolve(note)
        return chosen


def _write_attributes(noted: Mapping[int, Mapping[str, Any]]) -> tuple[Note, ...]:  # Any: JSON values
    return tuple(Note(kind=ATTRIBUTE, text=encode_json(dict(own)), number=number) for number, own in noted.items())


def read_shown(stored: Any) -> Config:  # Any: the JSON value that was stored
    """Return a stored configuration as it can be shown, for reading trials without their space."""
    shown: Config = stored["shown"]
    if not isinstance(shown, dict):
        raise TypeError(f"it is {shown!r:.40}, where names and values belong")
    return shown
