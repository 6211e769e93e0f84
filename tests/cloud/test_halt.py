"""What an executor knows of the money ends a run as a time budget does: with its best trial, and resumable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.execute.lab import STUDY

from headwater.conduct.limits import read_limits

REASON = "the budget of $1.00 has no room for another epoch; $0.90 are spent"


def test_a_run_whose_budget_is_used_up_ends_with_its_best_trial_and_can_be_resumed(tmp_path: Path) -> None:
    num_asked = 0

    def halt() -> str | None:
        nonlocal num_asked
        num_asked += 1
        return REASON if num_asked > 20 else None

    study = replace(STUDY, storage=tmp_path / "study.db", lanes=1)
    first = study.run_within(replace(read_limits(6, None, None), halt=halt))
    assert first.ended_early == REASON
    assert not first.was_interrupted
    assert first.best.metrics
    assert sum(trial.epochs for trial in first.trials) < 6 * 9
    assert [trial.epochs for trial in study.resume(6).trials] == [9] * 6
