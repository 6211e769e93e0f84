"""This process trains until that takes too long; what is nearly over stays in it."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.conduct.run_progress import RunProgress
from headwater.execute.auto import AutoExecutor
from headwater.trials import Status


def train(trial: hw.Trial) -> None:
    for epoch in trial.epochs(3):
        trial.report(loss=float(epoch))


@pytest.mark.parametrize(("seconds_left", "stays"), [(0.0, True), (1e6, False), (None, False)])
def test_what_is_nearly_over_stays_in_this_process(
    seconds_left: float | None, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunProgress, "foresee", lambda progress: seconds_left)
    executor = AutoExecutor(2, patience_s=0.0)
    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=None, lanes=1, executor=executor)
    assert [trial.status for trial in study.run(num_trials=3).trials] == [Status.COMPLETED] * 3
    assert executor.is_inline is stays
