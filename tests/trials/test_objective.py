"""Who is best, by which metric and in which direction."""

from __future__ import annotations

import math

import pytest

from headwater.trials import INFEASIBLE, Objective, Report, Status, TrialRecord


def make_trial(number: int, loss: float | None) -> TrialRecord:
    history = () if loss is None else (Report(number=number, epoch=1, metrics={"loss": loss}),)
    return TrialRecord(number=number, config={}, status=Status.COMPLETED, history=history)


def test_smaller_scores_are_better_in_both_directions() -> None:
    assert Objective("loss").score(1.0) < Objective("loss").score(2.0)
    assert Objective("loss", "max").score(2.0) < Objective("loss", "max").score(1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_finite_is_worse_than_all_else(mode: str, value: float) -> None:
    assert Objective("loss", mode).score(value) == INFEASIBLE > Objective("loss", mode).score(-1e300)


@pytest.mark.parametrize(("mode", "order"), [("min", [3, 0, 4, 1]), ("max", [1, 0, 4, 3])])
def test_trials_with_a_finite_value_are_ranked_equals_by_number(mode: str, order: list[int]) -> None:
    losses = {4: 0.5, 0: 0.5, 1: 0.9, 2: math.nan, 3: 0.1, 5: None}
    trials = [make_trial(number, loss) for number, loss in losses.items()]
    assert [trial.number for trial in Objective("loss", mode).rank(trials)] == order


def test_another_metric_ranks_nobody() -> None:
    assert Objective("accuracy").rank([make_trial(0, 0.5)]) == ()
