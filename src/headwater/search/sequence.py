"""The part that searchers with a fixed list of trials share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from headwater.space import Config
from headwater.trials import Segment, TrialRecord


def walk_trials(
    configs: Iterable[Config], num_trials: int | None, known: Sequence[TrialRecord] = ()
) -> Iterator[Segment]:
    """Yield a segment without end for each of the first `num_trials` configurations, save for trials that are over."""
    over = {record.number for record in known if record.status.is_final}
    for number, config in enumerate(islice(configs, num_trials)):
        if number not in over:
            yield Segment(number=number, config=config)
