"""How alike two lists rank the same things."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from headwater.trials import Status, TrialRecord, Trust

_Z_95 = 1.96
_SPREAD = 1.06
"""Of Fisher's transform of a rank correlation, times the root of n - 3 (Fieller, Hartley and Pearson, 1957)."""
FEWEST_CHANGES = 8
"""By fewer trials it is not said what is chance."""


class Standing(NamedTuple):
    """How a trial that came to its end stands."""

    number: int
    score: float
    """Its last value, less is better."""
    change: float
    """What the last epoch has changed; NaN where there was one only."""


def measure_trust(scale: int, other_scale: int, values: Sequence[tuple[float, float]]) -> Trust:
    """Compare how two widths rank configurations; values that are not finite rank last at their width."""
    agreement = correlate_ranks([pair[0] for pair in values], [pair[1] for pair in values])
    low, high = _interval(agreement, len(values))
    return Trust(scale=scale, other_scale=other_scale, values=tuple(values), agreement=agreement, low=low, high=high)


def correlate_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's correlation, equals sharing their ranks; 0 where one list has no order."""
    ranks, others = _ranks(first), _ranks(second)
    mean = (len(ranks) - 1) / 2
    spread = math.sqrt(sum((rank - mean) ** 2 for rank in ranks) * sum((rank - mean) ** 2 for rank in others))
    shared = sum((rank - mean) * (other - mean) for rank, other in zip(ranks, others, strict=True))
    return shared / spread if spread else 0.0


def order_by_merit(ranked: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Order trials, which are ranked by their last values, by what a search has made of them.

    Those that came to their end are before those that it stopped or paused, and of these the further ones are before
    the others, for their last values are of unlike lengths.
    """
    whole = [trial for trial in ranked if trial.status is Status.COMPLETED]
    cut = [trial for trial in ranked if trial.status is not Status.COMPLETED]
    return *whole, *sorted(cut, key=lambda trial: -trial.epochs)


def choose_early(standings: Sequence[Standing], num_early: float) -> int:
    """Return the best of the first trials where no later one is better by more than chance; else the best of all.

    So a target that starts with it before the search is over hardly ever starts in vain. What is chance is seen in the
    last epoch: by how much it moved the best quarter of the trials, up and down from what it moved most of them.
    """
    ranked = sorted(standings, key=lambda one: (one.score, one.number))
    changes = [one.change for one in ranked[: len(ranked) // 4] if math.isfinite(one.change)]
    early = next((one for one in ranked if one.number < num_early), ranked[0])
    if len(changes) < FEWEST_CHANGES:
        return ranked[0].number
    usual = median(changes)
    chance = median(abs(change - usual) for change in changes)
    return early.number if early.score - ranked[0].score <= chance else ranked[0].number


def spread_over(count: int, num_items: int) -> list[int]:
    """Return places in a ranking of `num_items`, from the best to the worst, evenly spread."""
    if count >= num_items:
        return list(range(num_items))
    if count == 1:
        return [0]
    return [round(place * (num_items - 1) / (count - 1)) for place in range(count)]


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(value if math.isfinite(value) else math.inf for value in values)
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    last = {value: place for place, value in enumerate(ordered)}
    finite = [value if math.isfinite(value) else math.inf for value in values]
    return [(first[value] + last[value]) / 2 for value in finite]


def _interval(correlation: float, count: int) -> tuple[float, float]:
    if count <= 3:
        return -1.0, 1.0
    centre = math.atanh(max(min(correlation, 1 - 1e-9), -1 + 1e-9))
    reach = _Z_95 * _SPREAD / math.sqrt(count - 3)
    # A perfect agreement of few has no finite transform; its lower end is that of one swap of neighbours.
    if abs(correlation) > 1 - 1e-9:
        nearest = math.atanh(1 - 12 / (count * (count * count - 1)))
        low = math.tanh(nearest - reach)
        return (low, 1.0) if correlation > 0 else (-1.0, -low)
    return math.tanh(centre - reach), math.tanh(centre + reach)
