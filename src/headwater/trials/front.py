"""The Pareto front: the candidates that no other beats in everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial as it is compared by several metrics."""

    number: int
    scores: tuple[float, ...]
    """One for each metric; less is better."""
    violation: float = 0.0
    """By how much it breaks the constraints; 0 where it keeps them."""


def find_front(candidates: Iterable[Candidate]) -> list[int]:
    """Return the numbers of the candidates on the front, in order; of broken constraints, the least broken counts."""
    found = list(candidates)
    least = min((one.violation for one in found), default=0.0)
    front: list[Candidate] = []
    # In this order none is beaten by a later one, and whoever is beaten is beaten by one of the front.
    for one in sorted((one for one in found if one.violation == least), key=lambda one: one.scores):
        if not any(_beats(other.scores, one.scores) for other in front):
            front.append(one)
    return sorted(one.number for one in front)


def _beats(first: Sequence[float], second: Sequence[float]) -> bool:
    """Tell whether the first is as good in everything, and better in something."""
    return first != second and all(one <= other for one, other in zip(first, second, strict=True))
