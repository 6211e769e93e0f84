"""How far a study is, and whether that tells how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.conduct.run_progress import RunProgress
from headwater.store import StudyInfo
from headwater.trials import Lane, Report, Status, TrialRecord


def make_info(search: str, num_seeds: int = 1) -> StudyInfo:
    settings = {"search": search, "num_seeds": num_seeds}
    return StudyInfo(name="study", metric="loss", mode="min", seed=0, settings=settings)


def train(progress: RunProgress, numbers: Sequence[int], epochs: Sequence[int], status: Status | None) -> None:
    """Have trials report these epochs of ten, and end so; None leaves them under way."""
    progress.num_epochs = 10
    progress.begin([Lane(number=number, config={}, seed=0) for number in numbers])
    for epoch in epochs:
        for number in numbers:
            progress.see([Report(number=number, epoch=epoch, metrics={"loss": 1.0})])
        progress.advance(numbers[0], epoch, len(numbers))
    if status is not None:
        for number in numbers:
            progress.end(number, status)
        progress.advance(numbers[0], 0, 0)


def test_trials_that_all_train_to_their_end_tell_how_far_the_study_is() -> None:
    progress = RunProgress(make_info("random"), 4)
    assert progress.pulse().share_foreseen is None
    train(progress, [0, 1], range(1, 6), None)
    assert progress.pulse().share_foreseen == pytest.approx(10 / 40)


@pytest.mark.parametrize("search", ["median", "MyOwnSearcher"])
def test_where_trials_may_be_stopped_those_that_ended_tell_how_long_the_others_train(search: str) -> None:
    progress = RunProgress(make_info(search), 16)
    train(progress, range(2), range(1, 11), Status.COMPLETED)
    assert progress.pulse().share_foreseen is None
    train(progress, range(2, 8), range(1, 3), Status.STOPPED)
    # The mean is 4 epochs: 8 trials have trained 32, and 8 more of them are to come.
    assert progress.pulse().share_foreseen == pytest.approx(32 / 64)


def test_a_trial_that_outlives_the_mean_counts_with_what_it_has_trained() -> None:
    progress = RunProgress(make_info("median"), 8)
    train(progress, range(6), range(1, 3), Status.STOPPED)
    train(progress, [6], range(1, 7), None)
    assert progress.pulse().share_foreseen == pytest.approx(18 / 20)


def test_where_trials_pause_nobody_can_tell() -> None:
    progress = RunProgress(make_info("asha"), 16)
    progress.begin([Lane(number=number, config={}, seed=0, until=1) for number in range(16)])
    train(progress, range(8), range(1, 2), Status.STOPPED)
    assert progress.pulse().share_foreseen is None
    assert progress.pulse().share_done == 0.5


def test_what_an_earlier_run_trained_does_not_speed_up_the_rest() -> None:
    history = tuple(Report(number=0, epoch=epoch, metrics={"loss": 1.0}) for epoch in range(1, 11))
    known = [TrialRecord(number=n, config={}, status=Status.COMPLETED, history=history) for n in range(6)]
    progress = RunProgress(make_info("random"), 8, known)
    assert progress.pulse().share_foreseen is None
    train(progress, [6, 7], range(1, 6), None)
    assert progress.pulse().share_foreseen == pytest.approx(0.5)


def test_a_trial_is_done_when_it_is_under_every_seed() -> None:
    progress = RunProgress(make_info("random", num_seeds=3), 2)
    train(progress, range(4), range(1, 11), Status.COMPLETED)
    pulse = progress.pulse()
    assert (pulse.num_done, pulse.num_total) == (1, 2)
    assert pulse.share_done == pulse.share_foreseen == pytest.approx(4 / 6)
    train(progress, [4, 5], range(1, 3), Status.FAILED)
    pulse = progress.pulse()
    assert (pulse.num_done, pulse.num_failed, pulse.share_foreseen) == (2, 1, 1.0)
