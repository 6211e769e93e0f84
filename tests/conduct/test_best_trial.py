"""The best of the trials that have ended, whatever comes in between."""

from __future__ import annotations

import math

from headwater.conduct.best_trial import BestTrial
from headwater.trials import Objective, Report, Status, TrialRecord

LOSS = Objective("loss", "min")


def test_only_a_better_trial_takes_the_place() -> None:
    best = BestTrial(LOSS)
    assert best.update({3: 0.5, 4: 0.4}) == 4
    assert best.update({5: 0.4}) is None
    assert best.update({6: 0.3}) == 6


def test_in_mode_max_the_largest_wins() -> None:
    best = BestTrial(Objective("accuracy", "max"))
    assert best.update({0: 0.5, 1: 0.7}) == 1
    assert best.update({2: 0.6}) is None


def test_nothing_that_is_not_finite_wins() -> None:
    best = BestTrial(LOSS)
    assert best.update({0: math.nan, 1: math.inf}) is None
    assert best.update({}) is None
    assert not best.replace(0)


def test_a_paused_trial_that_is_dropped_may_win_by_its_last_value() -> None:
    best = BestTrial(LOSS)
    best.see(1, 0.2)
    assert best.update({0: 0.5}) == 0
    assert best.replace(1)
    assert not best.replace(1)


def test_a_resumed_study_compares_with_the_trial_whose_weights_are_kept() -> None:
    history = (Report(number=7, epoch=1, metrics={"loss": 0.4}),)
    known = [TrialRecord(number=7, config={}, status=Status.COMPLETED, history=history)]
    best = BestTrial(LOSS, known, 7)
    assert best.update({8: 0.5}) is None
    assert best.update({9: 0.3}) == 9
