"""The executor of this process: one placement after the other, here and now."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
from tests.clocks import JumpingClock
from tests.execute.lab import STUDY

import headwater as hw
from headwater.execute import InlineExecutor
from headwater.trials import Device


def test_it_has_one_device_and_by_default_that_is_a_core() -> None:
    assert [device.name for device in InlineExecutor().list_devices()] == ["cpu:0"]
    device = Device(name="cuda:3", kind="cuda")
    assert InlineExecutor(device).list_devices() == [device]


def test_the_function_is_called_as_it_is_in_this_process_and_thread() -> None:
    seen: list[tuple[int, int]] = []

    def note(trial: hw.Trial) -> None:
        seen.append((os.getpid(), threading.get_ident()))
        trial.report(loss=1.0)

    replace(STUDY, train=note, executor=InlineExecutor(), lanes=1).run(num_trials=2)
    assert seen == [(os.getpid(), threading.get_ident())] * 2


def test_what_is_no_ordinary_exception_comes_out_as_it_is() -> None:
    class Sudden(BaseException):
        pass

    def sudden(trial: hw.Trial) -> None:
        raise Sudden

    with pytest.raises(Sudden):
        replace(STUDY, train=sudden, executor=InlineExecutor()).run(num_trials=2)


@pytest.mark.parametrize(("num_reports", "epochs"), [(None, 9), (1, 2), (4, 5)])
def test_a_trial_that_is_to_leave_is_saved_at_one_report_and_leaves_at_the_next(
    num_reports: int | None, epochs: int
) -> None:
    from headwater.conduct.limits import Limits
    from headwater.stage import OpenStudy, RunSettings

    clock = JumpingClock()
    begin = clock()

    def note(trial: hw.Trial) -> None:
        for _ in trial.epochs(9):
            clock.jump(1.0)
            trial.report(loss=1.0)

    opened = OpenStudy(replace(STUDY, train=note), Limits(num_trials=1), RunSettings(), is_new=True)
    opened.conductor.begin()

    def is_over(study: str = "") -> bool:
        return num_reports is not None and clock() >= begin + num_reports

    is_done = InlineExecutor().run_until(opened.conductor, is_over, is_over)
    assert is_done == (num_reports is None)
    (trial,) = opened.conductor.result("memory").trials
    assert trial.epochs == epochs
    InlineExecutor().run(opened.conductor)
    (trial,) = opened.conductor.result("memory").trials
    assert [report.epoch for report in trial.history] == list(range(1, 10))


def test_a_trial_that_cannot_continue_from_a_checkpoint_stays_until_its_end() -> None:
    """It keeps a generator from one epoch to the next."""
    from headwater.conduct.limits import Limits
    from headwater.stage import OpenStudy, RunSettings

    def keep_generator(trial: hw.Trial) -> None:
        numbers = (float(number) for number in range(99))
        for _ in trial.epochs(9):
            trial.report(loss=next(numbers))

    study = replace(STUDY, train=keep_generator, lanes=1)
    opened = OpenStudy(study, Limits(num_trials=2), RunSettings(), is_new=True)
    opened.conductor.begin()
    assert not InlineExecutor().run_until(opened.conductor, lambda: True, lambda study: True)
    first, second = opened.conductor.result("memory").trials
    assert [report.epoch for report in first.history] == list(range(1, 10))
    assert not second.history
