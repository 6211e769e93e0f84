"""Who sat on which device, from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpanPurpose(StrEnum):
    """What a device did with the trials that sat on it."""

    LANES = "lanes"
    """It trained them as one group."""
    PACK = "pack"
    """It trained them as several groups that take turns."""
    RANKS = "ranks"
    """It trained one of them together with other devices, each a part of every batch."""
    MEASUREMENT = "measurement"
    """It took a few steps of some, to measure them."""
    ABSENCE = "absence"
    """None sat there, for it was not there: it came later, or had left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time in which the same trials sat on a device; when one leaves or joins, another begins."""

    study: str
    device: str
    purpose: SpanPurpose
    trials: tuple[int, ...]
    begin_s: float
    """Counted from when the run began; a run that resumes a study counts on from the last span before."""
    end_s: float

    @property
    def seconds(self) -> float:
        """How long they sat there."""
        return self.end_s - self.begin_s
