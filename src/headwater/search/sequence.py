"""The part that searchers with a fixed list of trials share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from headwater.search.protocol import Stage
from headwater.space import Config, Space
from headwater.trials import Segment, TrialRecord


def walk_trials(
    configs: Iterable[Config], num_trials: int | None, known: Sequence[TrialRecord] = ()
) -> Iterator[Segment]:
    """Yield a segment without end for each of the first `num_trials` configurations, save for trials that are over."""
    over = {record.number for record in known if record.status.is_final}
    for number, config in enumerate(islice(configs, num_trials)):
        if number not in over:
            yield Segment(number=number, config=config)


def plan_walk(space: Space, num_trials: int | None) -> list[list[Stage]] | None:
    """Return the one stage of a search that trains each trial to its end; None where there is no end of trials."""
    count = count_trials(space, num_trials)
    return [[Stage(num_trials=count, until=None)]] if count else None


def count_trials(space: Space, num_trials: int | None) -> int | None:
    """Return how many trials there are: as many as are wanted, or as the space has; None where neither says."""
    known = [number for number in (num_trials, space.size) if number is not None]
    return min(known, default=None)
