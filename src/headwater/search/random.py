"""Random search: every trial drawn on its own, and trained to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from random import Random

from headwater.search.sequence import walk_trials
from headwater.space import Config, Space
from headwater.trials import Decision, Report, Segment, Status, TrialRecord

NUM_DRAWS = 64
"""How often a configuration that was tried already is drawn again before what is left of the space is listed."""


class RandomSearch:
    """Draws configurations from the space.

    What trial n gets depends on the space, the seed and n alone: neither on how many run at once nor on their results.
    No configuration comes twice; the search ends after `num_trials`, or when a finite space has nothing left.
    """

    def __init__(
        self, space: Space, seed: int, num_trials: int | None = None, known: Sequence[TrialRecord] = ()
    ) -> None:
        self._segments = walk_trials(_draw_configs(space, seed), num_trials, known)

    def propose(self, count: int) -> Sequence[Segment]:
        """Return the next trials."""
        return list(islice(self._segments, count))

    def observe(self, report: Report) -> Decision:
        """Let every trial go on to its end."""
        return Decision.CONTINUE

    def finish(self, number: int, status: Status) -> None:
        """Learn nothing: no draw depends on a result."""


def _draw_configs(space: Space, seed: int) -> Iterator[Config]:
    is_finite = space.size is not None
    tried: set[str] = set()
    for number in count():
        config = _draw_untried(space, seed, number, tried)
        if config is None and is_finite:
            yield from _list_untried(space, seed, tried)
            return
        if config is None:
            # A few configurations make up nearly all of an endless space: rather one of them again than none.
            config = space.sample(Random(f"{seed}:{number}"), number)
        tried.add(_name(space, config))
        yield config


def _draw_untried(space: Space, seed: int, number: int, tried: set[str]) -> Config | None:
    rng = Random(f"{seed}:{number}")
    for _ in range(NUM_DRAWS):
        config = space.sample(rng, number)
        if _name(space, config) not in tried:
            return config
    return None


def _list_untried(space: Space, seed: int, tried: set[str]) -> list[Config]:
    """List what is left, shuffled."""
    left = [config for config in space.configurations() if _name(space, config) not in tried]
    Random(f"{seed}:left").shuffle(left)
    return left


def _name(space: Space, config: Config) -> str:
    return repr(space.encode(config))
