"""What a conductor of stages runs one after the other: studies of their own, and single measurements."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headwater.conduct.limits import Limits
from headwater.conduct.listeners import Listener
from headwater.conduct.study_conductor import StudyConductor
from headwater.plan.jobs import Part
from headwater.space import Config
from headwater.trials import (
    Brief,
    Device,
    DevicePool,
    Event,
    Finding,
    Lane,
    Learnt,
    Measured,
    Order,
    Placement,
    Purpose,
    Result,
    Starting,
    Surrogate,
    TrialGroup,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """A stage that is to run: a study of its own, at one width."""

    surrogate: Surrogate
    """Says at which width its models are."""
    name: str | None
    """What the record calls it; None for a name of its own."""
    limits: Limits
    configs: tuple[Config, ...] | None = None
    """What it trains; None: what the study's own search proposes."""
    lanes: int | str | None = None
    """How many trials train as one; None as the study has it."""
    part_of: str | None = None
    """The search that it belongs to."""
    is_recorded: bool = True
    """Whether it is in the record of the study, or only in memory."""
    is_new: bool | None = None
    """Whether it begins; None to go on if the record has it."""
    is_watched: bool = True
    """Whether its progress is shown."""
    listeners: tuple[Listener, ...] = ()
    learnt: Learnt = field(default_factory=Learnt)
    """What earlier stages have learnt of the function."""


@runtime_checkable
class Stage(Protocol):
    """A study that is open: it has a record, and somebody who conducts it."""

    @property
    def name(self) -> str:
        """What the record calls it."""

    @property
    def conductor(self) -> StudyConductor:
        """Who decides for it."""

    def finish(self) -> Result:
        """Conclude it when it has come to its end."""

    def refuse(self) -> None:
        """Take it out of the record again if no trial of it has reported."""

    def close(self) -> None:
        """Let go of its record, however it ended."""


class Measuring:
    """A conductor of one measurement."""

    def __init__(
        self, brief: Brief, lanes: Sequence[Lane], purpose: Purpose, keys: Iterator[int], seconds_left: float
    ) -> None:
        self.finding: Finding = None
        self._brief = brief
        self._group = TrialGroup(lanes=tuple(lanes))
        self._purpose = purpose
        self._keys = keys
        self._seconds_left = None if math.isinf(seconds_left) else seconds_left
        self._key: int | None = None
        self.is_running = False

    def brief(self, study: str) -> Brief:
        """Return what a worker must know."""
        return self._brief

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        """Return the one placement there is, once."""
        if self._key is not None or not idle:
            return []
        self._key, self.is_running = next(self._keys), True
        return [
            Placement(
                key=self._key,
                study=self._brief.study,
                groups=(self._group,),
                devices=(idle[0].name,),
                purpose=self._purpose,
                seconds_left=self._seconds_left,
            )
        ]

    @property
    def name(self) -> str:
        """What the study is called."""
        return self._brief.study

    def list_lanes(self) -> None:
        """Return nothing: what comes after it is open."""

    def is_to_end(self) -> bool:
        """Tell that it goes on: it takes no time."""
        return False

    @property
    def part(self) -> Part:
        """What comes after it."""
        return Part.SEARCH

    def foresee(self) -> float | None:
        """Return nothing: nobody has timed it."""
        return None

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        """Return those there are: nobody knows of it, and could wish others."""
        return pool.names

    def regroup(self, devices: Collection[str] | None = None) -> None:
        """Do nothing: what is measured is soon over."""

    def hear(self, event: Event) -> Order | None:
        """Take in what was found; a worker that is lost before has found nothing."""
        if isinstance(event, Measured):
            self.finding = event.finding
        self.is_running = isinstance(event, Starting)
        return None
