"""What a study is conducted with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from headwater.conduct.limits import Limits
from headwater.conduct.listeners import Listener
from headwater.plan import Packing
from headwater.search import Searcher
from headwater.store import Recorder
from headwater.trials import Brief, Silence, TrialRecord, Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySetup:
    """What a study is conducted with."""

    brief: Brief
    recorder: Recorder
    searcher: Searcher
    limits: Limits
    lanes: int | None = None
    """How many trials train as one; None to measure what is fastest."""
    packing: Packing | None = None
    save_every: int | str | None = None
    known: Sequence[TrialRecord] = ()
    watcher: Watcher = field(default_factory=Silence)
    listeners: Sequence[Listener] = ()
    spreads: bool = False
    """Whether a group gets all devices that are idle when it is placed."""
    keys: Iterator[int] = field(default_factory=count)
    """What numbers placements; conductors that share devices share it."""
