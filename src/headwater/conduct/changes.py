"""Changes of what groups have that are under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.trials import Lane, TrialGroup


@dataclass(slots=True)
class Change:
    """A change that was ordered, until it is seen what it cost and gained."""

    text: str
    lanes: tuple[Lane, ...]
    num_more: int
    """How many devices it takes that were idle when it was ordered."""
    since_s: float
    epoch: int
    seconds_before: float
    """How long an epoch took before."""
    is_elsewhere: bool = False
    """Whether it goes to another device, and need not wait for the one that it had."""
    first_s: float | None = None
    """When the first epoch after it was reported."""
    cost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Groups that wait until the devices that they had are idle."""

    devices: frozenset[str]
    groups: tuple[TrialGroup, ...]
    num_more: int


@dataclass(slots=True)
class Merge:
    """Groups that are to become one: the placements that they have not left yet, and the lanes that have come."""

    awaited: set[int]
    lanes: list[Lane] = field(default_factory=list)
