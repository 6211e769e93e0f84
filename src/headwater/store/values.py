"""What is handed to the store and, beside trial records, comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import StoreError, StudyError
from headwater.trials import Constraint, Objective, Report, Span, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInfo:
    """What defines a study; written once."""

    name: str
    metric: str
    mode: str
    seed: int
    space: Any = None  # Any: a JSON value
    """A description of the space, as JSON."""
    settings: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    """Everything else that a resumed study needs to know, as JSON."""
    id: int = 0
    """Given by the store."""
    created: float = 0.0
    """Seconds since 1970, given by the store."""
    uuid: str = ""
    """What no other study has, in no other database but a copy; given by the store."""

    @property
    def num_seeds(self) -> int:
        """Under how many seeds each trial is trained; the record holds every replica."""
        return int(self.settings.get("num_seeds") or 1)

    @property
    def also(self) -> Mapping[str, str]:
        """The further metrics that count, with their modes."""
        also = self.settings.get("also")
        return {str(name): str(mode) for name, mode in also.items()} if isinstance(also, dict) else {}

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What trials must keep to."""
        texts = self.settings.get("constraints")
        try:
            return tuple(map(Constraint.read, texts)) if isinstance(texts, list) else ()
        except StudyError as error:
            raise StoreError(f"what study {self.name!r} must keep to cannot be read: {error}") from error

    @property
    def objective(self) -> Objective:
        """What trials are compared by."""
        return Objective(self.metric, self.mode, str(self.settings.get("judge", "last")), self.constraints)

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**63:
            raise StoreError(f"the seed {self.seed} needs more than the 64 bits a record has; give one below 2**63")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A trial changed its status, or spent time."""

    number: int
    status: Status
    epoch: int
    """How many epochs the trial had trained by then."""
    error: str | None = None
    seconds: float = 0.0
    """What the trial has spent since its previous transition."""


ATTRIBUTE = "attribute"
"""The kind of notes that hold what a training function has noted of its trial, as JSON."""
DEVICES = "devices"
"""The kind of notes that say why a trial has the devices it has, and what that gained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A remark for the report, on one trial or (number None) on the whole study."""

    kind: str
    text: str
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is written together: after a crash the record holds all of it or nothing."""

    reports: tuple[Report, ...] = ()
    transitions: tuple[Transition, ...] = ()
    notes: tuple[Note, ...] = ()
    spans: tuple[Span, ...] = ()
