"""Where trials are compared: the arithmetic of successive halving, in whole numbers throughout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import Any

from headwater.errors import StudyError
from headwater.search.ledger import INFEASIBLE
from headwater.search.problem import Problem
from headwater.search.protocol import Stage
from headwater.settings import set_whole


def plan_halving(
    num_trials: int, *, reduction: int = 3, min_epochs: int = 1, max_epochs: int | None = None
) -> tuple[Stage, ...]:
    """Plan successive halving: each stage trains a `reduction`-th of the trials `reduction` times as long.

    Stages add up: 32 trials and at most 50 epochs, reduced by 3, are 32 trials for 1 epoch, 10 for 3 more, 3 for 9
    more, and the last for the 37 that are left. The last stage is the one with a single trial, or the one that
    reaches `max_epochs`.
    """
    stages: list[Stage] = []
    until = 0
    for power in count():
        num_left = max(1, num_trials // reduction**power)
        until += min_epochs * reduction**power
        if num_left == 1 or (max_epochs is not None and until >= max_epochs):
            return (*stages, Stage(num_trials=num_left, until=max_epochs))
        stages.append(Stage(num_trials=num_left, until=until))
    raise AssertionError("count has no end")


def plan_brackets(max_epochs: int, *, reduction: int = 3, min_epochs: int = 1) -> tuple[tuple[Stage, ...], ...]:
    """Plan one round of Hyperband: brackets from many trials that start small to few that train to the end at once.

    With 81 epochs, reduced by 3, the brackets have 81, 34, 15, 8 and 5 trials.
    """
    most = _count_reductions(max_epochs // min_epochs, reduction)
    sizes = [(power, -(-(most + 1) * reduction**power // (power + 1))) for power in range(most, -1, -1)]
    return tuple(plan_bracket(size, power, reduction=reduction, max_epochs=max_epochs) for power, size in sizes)


def plan_bracket(num_trials: int, power: int, *, reduction: int, max_epochs: int) -> tuple[Stage, ...]:
    """Plan a bracket of Hyperband whose first stage trains `reduction` to this power times less than its last.

    Stages at whose end no trial would be dropped, as there are in a bracket of few trials, are left out.
    """
    stages = [
        Stage(num_trials=max(1, num_trials // reduction**step), until=max_epochs // reduction ** (power - step))
        for step in range(power + 1)
    ]
    kept = [stage for stage, after in pairwise(stages) if stage.num_trials > after.num_trials]
    return (*kept, stages[-1])


def list_rungs(*, reduction: int, min_epochs: int, max_epochs: int | None) -> Iterator[int]:
    """Yield the epochs after which asynchronous halving compares trials, the last being `max_epochs`."""
    for power in count():
        rung = min_epochs * reduction**power
        if max_epochs is not None and rung >= max_epochs:
            yield max_epochs
            return
        yield rung


def check_ladder(settings: Any) -> None:  # Any: one of the searches, which have these fields
    """Refuse settings from which no rungs follow."""
    for name, least in (("reduction", 2), ("min_epochs", 1), ("max_epochs", 1)):
        set_whole(settings, name, least)
    _check_range(settings.min_epochs, settings.max_epochs)


def choose_max_epochs(own: int | None, problem: Problem, min_epochs: int = 1) -> int | None:
    """Return a search's own limit, else the study's, and refuse one that is too small."""
    max_epochs = problem.max_epochs if own is None else own
    _check_range(min_epochs, max_epochs)
    return max_epochs


def require_max_epochs(name: str, own: int | None, problem: Problem, min_epochs: int = 1) -> int:
    """Return what `choose_max_epochs` does, and say what to do where there is no limit."""
    max_epochs = choose_max_epochs(own, problem, min_epochs)
    if max_epochs is None:
        raise StudyError(
            f"{name} shares out a number of epochs and was given none; pass max_epochs to the study, "
            f"or write search={name}(max_epochs=...)"
        )
    return max_epochs


def rank(scores: Sequence[tuple[float, int]], num_kept: int) -> list[int]:
    """Return the numbers of the best trials, given as (score, number); equals by number, infeasible ones never."""
    return [number for score, number in sorted(scores)[:num_kept] if score < INFEASIBLE]


def _check_range(min_epochs: int, max_epochs: int | None) -> None:
    if max_epochs is not None and max_epochs < min_epochs:
        raise StudyError(
            f"max_epochs is {max_epochs}, below the {min_epochs} epochs that every trial gets; "
            f"raise max_epochs or lower min_epochs"
        )


def _count_reductions(ratio: int, reduction: int) -> int:
    """Return the largest power of `reduction` within `ratio`: the logarithm, without its rounding errors."""
    return next(power for power in count() if reduction ** (power + 1) > ratio)
