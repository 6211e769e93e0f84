"""Whether a wider model ranks the configurations of a search alike, and which of them is the best after that."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from headwater.plan import measure_trust, order_by_merit, spread_over
from headwater.trials import Result, Surrogate, TrialRecord, Trust

T = TypeVar("T")

Steps: TypeAlias = Generator[Any, Any, T]  # Any: stages and what comes of them, which pass through to who runs them
"""Yields the stages that must run before it can be said what follows, and is sent what came of each."""


class Trainer(Protocol):
    """Trains configurations at other widths, as far as there is time."""

    def has_time(self, scale: int, count: int, purpose: str) -> Steps[bool]:
        """Tell whether there is time to train so many at this width; if not, it is noted what for."""

    def train(self, scale: int, trials: Sequence[TrialRecord], purpose: str) -> Steps[list[TrialRecord] | None]:
        """Train these trials' configurations, and return what came of each; None where the time was over before."""


class _Sample(NamedTuple):
    """A configuration of those that widths are compared by, as it was trained at one of them."""

    trial: TrialRecord
    place: float
    """Where it stands among the others there, the lowest first."""


class RankingCheck:
    """Compares the ranking of a search with that of wider models, and climbs to them where they disagree."""

    def __init__(self, search: Result, surrogate: Surrogate, trainer: Trainer, tell: Callable[[str], None]) -> None:
        self._search = search
        self._surrogate = surrogate
        self._trainer = trainer
        self._tell = tell

    def settle(self, ranked: Sequence[TrialRecord], scale: int) -> Steps[tuple[TrialRecord, Trust | None]]:
        """Check the ranking at twice the width, and again at twice that, until it can be trusted or time is short.

        The same configurations, from all over the ranking of the search, are compared at every width: among the best
        alone, which are nearly equals, no two widths agree, and little depends on it.
        """
        trust: Trust | None = None
        num_checked = self._surrogate.num_checked
        panel = [_Sample(ranked[place], place) for place in spread_over(num_checked, len(ranked))]
        spare = [_Sample(ranked[place], place) for place in spread_over(2 * num_checked, len(ranked))]
        spare = [sample for sample in spare if sample.place not in {one.place for one in panel}]
        while num_checked > 1 and scale > 1 and len(ranked) > 2:
            wider = scale // 2
            checked = yield from self._check(scale, panel, spare)
            if checked is None:
                break
            trust, panel = checked
            spare = []  # how they stand is known at the scale of the search alone
            if trust.agreement >= self._surrogate.min_agreement or wider == 1:
                break
            climbed = yield from self._climb(ranked[: max(4, len(ranked) // 4)], scale)
            if climbed is None:
                break
            ranked, scale = climbed or ranked, wider
        return ranked[0], trust

    def _climb(self, few: Sequence[TrialRecord], scale: int) -> Steps[Sequence[TrialRecord] | None]:
        """Train the best again at twice the width, and rank them by that; None where there was no time to."""
        wider = scale // 2
        purpose = f"training the best {len(few)} again at 1/{wider} of the width"
        if not (yield from self._trainer.has_time(wider, len(few), purpose)):
            return None
        self._tell(f"the ranking at 1/{scale} is poor, so the best {len(few)} train at 1/{wider} of the width")
        retrained = yield from self._trainer.train(wider, few, purpose)
        if retrained is None:
            return None
        pairs = zip(few, retrained, strict=True)
        trials = tuple(replace(one, history=other.history, status=other.status) for one, other in pairs)
        return order_by_merit(replace(self._search, trials=trials).ranked)

    def _check(
        self, scale: int, panel: list[_Sample], spare: list[_Sample]
    ) -> Steps[tuple[Trust, list[_Sample]] | None]:
        """Train the panel at twice the width, with the spare ones too if it leaves the matter in doubt.

        Returns:
            How alike the widths rank them, and how they stand at twice the width; None where there was no time for it.
        """
        wider, least = scale // 2, self._surrogate.min_agreement
        again = yield from self._try_wider(wider, panel, f"the check of the ranking at 1/{wider} of the width")
        if again is None:
            return None
        trust = self._compare(scale, wider, panel, again)
        self._tell(f"trust: {trust}")
        if spare and trust.agreement < least <= trust.high:
            more = yield from self._try_wider(wider, spare, f"the check of {len(spare)} more at 1/{wider} of the width")
            if more is not None:
                again += more
                trust = self._compare(scale, wider, [*panel, *spare], again)
                self._tell(f"trust, with more of them to be sure: {trust}")
        return trust, again

    def _try_wider(self, scale: int, panel: Sequence[_Sample], purpose: str) -> Steps[list[_Sample] | None]:
        """Train these configurations at another width, and return how they stand there; None for want of time."""
        if not (yield from self._trainer.has_time(scale, len(panel), purpose)):
            return None
        again = yield from self._trainer.train(scale, [sample.trial for sample in panel], purpose)
        if again is None:
            return None
        score = self._search.objective.score
        return [
            _Sample(
                replace(sample.trial, history=other.history),
                score(other.value(self._search.metric)),
            )
            for sample, other in zip(panel, again, strict=True)
        ]

    def _compare(self, scale: int, wider: int, panel: Sequence[_Sample], again: Sequence[_Sample]) -> Trust:
        pairs = list(zip(panel, again, strict=True))
        metric = self._search.metric
        trust = measure_trust(scale, wider, [(first.place, last.place) for first, last in pairs])
        return replace(
            trust, values=tuple((first.trial.value(metric), last.trial.value(metric)) for first, last in pairs)
        )
