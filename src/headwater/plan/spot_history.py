"""What was to be had of spot instances in the past: counts at even moments, as a file has them.

The files are those of skypilot-org/spot-traces (github.com): JSON with `metadata.gap_seconds`, the time from one count
to the next, and `data`, how many instances could be had at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import PlanError
from headwater.plain_files import read_plain
from headwater.plan.given_numbers import LARGEST_COUNT, read_number

LARGEST_FILE = 2**24
NEEDED = 'a history has {"metadata": {"gap_seconds": 300}, "data": [16, 16, 0, ...]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotHistory:
    """How many spot instances could be had, one count after the other.

    Raises:
        PlanError: It says nothing of how they come and go.
    """

    step_s: float
    """How far counts are apart."""
    counts: tuple[int, ...]
    source: str = "spot history"
    """Where it comes from."""

    def __post_init__(self) -> None:
        if not 0 < self.step_s < math.inf:
            raise PlanError(f"gap_seconds is {self.step_s:g}; it must be above 0")
        if not self.counts:
            raise PlanError(f"its data are empty; {NEEDED}")
        if min(self.counts) < 0:
            raise PlanError(f"its data have {min(self.counts)}; no count is below 0")
        if min(self.counts) == max(self.counts):
            there = "no spot instance was ever" if not self.counts[0] else f"{self.counts[0]} were always"
            raise PlanError(
                f"{there} to be had in it, so it does not tell how they come and go; take a longer one, or none"
            )

    def is_there(self, num_nodes: int, factor: int = 1) -> list[bool]:
        """Return when so many could be had at once; throughout each of steps that are so many times longer."""
        there = [count >= num_nodes for count in self.counts]
        return [all(there[first : first + factor]) for first in range(0, len(there), factor)]


def read_history(path: str | Path) -> SpotHistory:
    """Read a history from a file.

    Raises:
        PlanError: It cannot be read, or makes no sense.
    """
    try:
        content = json.loads(read_plain(Path(path), LARGEST_FILE))
    except OSError as error:
        raise PlanError(f"the spot history {str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the spot history {str(path)!r} is no JSON: {error}; {NEEDED}") from error
    try:
        return _read(content, str(path))
    except PlanError as error:
        raise PlanError(f"the spot history {str(path)!r}: {error}") from error


def _read(content: Any, source: str) -> SpotHistory:  # Any: what a JSON file holds
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    data = content.get("data") if isinstance(content, Mapping) else None
    if not isinstance(metadata, Mapping) or "gap_seconds" not in metadata or not isinstance(data, list):
        raise PlanError(f"it lacks metadata.gap_seconds or data; {NEEDED}")
    step_s = read_number("gap_seconds", metadata["gap_seconds"])
    return SpotHistory(step_s=step_s, counts=tuple(map(_read_count, data)), source=source)


def _read_count(given: Any) -> int:  # Any: as above
    if (
        isinstance(given, int | float)
        and not isinstance(given, bool)
        and abs(given) <= LARGEST_COUNT
        and given % 1 == 0
    ):
        return int(given)
    raise PlanError(f"its data have {given!r:.60}; each must be a whole number of instances")
