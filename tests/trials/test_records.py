"""Trials as the record holds them."""

from __future__ import annotations

from headwater.trials import Report, Status, TrialRecord
from headwater.trials.records import count_statuses

REPORT = Report(number=0, epoch=1, metrics={"loss": 1.0})


def make(number: int, status: Status, *history: Report) -> TrialRecord:
    return TrialRecord(number=number, config={}, status=status, history=history)


def test_trials_that_were_opened_and_have_not_begun_do_not_count_as_running() -> None:
    trials = [
        make(0, Status.FAILED),
        make(1, Status.RUNNING, REPORT),
        make(2, Status.RUNNING),
        make(3, Status.COMPLETED, REPORT),
        make(4, Status.RUNNING),
    ]
    assert list(count_statuses(trials).items()) == [("not begun", 2), ("running", 1), ("completed", 1), ("failed", 1)]
    assert count_statuses([]) == {}
