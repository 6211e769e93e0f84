"""What trials must keep to, besides being good: bounds of metrics that they report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import StudyError

_FORM = re.compile(r"\s*(?P<metric>[^<>=]*[^<>=\s])\s*(?P<relation><=|>=)\s*(?P<bound>[^<>=\s]+)\s*")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A metric that is to be at most, or at least, a number."""

    metric: str
    relation: str
    """"<=" or ">="."""
    bound: float

    @classmethod
    def read(cls, text: object) -> Constraint:
        """Read one as it is written, such as "latency <= 20".

        Raises:
            StudyError: It is written otherwise.
        """
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        try:
            bound = float(match["bound"]) if match is not None else math.nan
        except ValueError:
            bound = math.nan
        if match is None or not math.isfinite(bound):
            raise StudyError(
                f"a constraint is {text!r}; write it as a metric that the function reports, <= or >=, and a number, "
                "such as 'latency <= 20'"
            )
        return cls(match["metric"], match["relation"], bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {self.bound:g}"

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Return by how much metrics break it, as a part of the bound; 0 or less where they keep it.

        A metric that is missing, or no number, breaks it without end.
        """
        value = metrics.get(self.metric, math.nan)
        excess = (value - self.bound) if self.relation == "<=" else (self.bound - value)
        return math.inf if math.isnan(excess) else excess / (abs(self.bound) or 1.0)


def read_constraints(given: object) -> tuple[Constraint, ...]:
    """Read what a user gives: a list of constraints, or a single one.

    Raises:
        StudyError: One is written otherwise, or there are two alike of one metric.
    """
    given = [given] if isinstance(given, str | Constraint) else given
    if not isinstance(given, list | tuple):
        raise StudyError(f"constraints is {given!r}; it must be a list, such as ['latency <= 20']")
    found = tuple(one if isinstance(one, Constraint) else Constraint.read(one) for one in given)
    sides = [(one.metric, one.relation) for one in found]
    twice = next((one for one, side in zip(found, sides, strict=True) if sides.count(side) > 1), None)
    if twice is not None:
        raise StudyError(f"constraints has {twice.metric} {twice.relation} more than once; give the one that counts")
    return found
