"""What a study with surrogates leaves out when its time is short, by a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.clocks import JumpingClock
from torch import nn
from torch.utils.data import Subset, TensorDataset

import headwater as hw
from headwater.conduct.limits import Limits
from headwater.report import Silence
from headwater.report.reading import read_study
from headwater.store import open_store
from headwater.trials import Deadline, Result, Status

WIDTH = 64
DATA = TensorDataset(torch.ones(192, 8))
STEPS_PER_EPOCH, NUM_EPOCHS = 6, 3
TARGET_EPOCH_S = STEPS_PER_EPOCH * 0.5

SURROGATE = hw.Surrogate(scale=4, min_width=4, num_checked=4, min_agreement=0.9, eager=False, on_drift=None)


def make_study(
    clock: JumpingClock, path: Path, surrogate: hw.Surrogate = SURROGATE, num_read: int = len(DATA)
) -> hw.Study:
    """Return a study whose steps take half a second at full width and less at others, as the width.

    Its data loader has so many examples, of which an epoch takes as many as there are in DATA.
    Surrogates and wider models rank configurations the other way round. A trial of the search takes 2.25 s, one at
    twice the width 4.5 s, the target 9 s. With eight trials, the search takes 18 s, the check 18 s, training the best
    again 18 s, and the check of these at full width 36 s.
    """

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)))
        loader = trial.prepare_data_loader(Subset(DATA, [0] * num_read), batch_size=32)
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        width = len(next(model.parameters()))
        for _ in trial.epochs(NUM_EPOCHS):
            began = clock()
            for (x,) in islice(loader, STEPS_PER_EPOCH):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                clock.jump(0.5 * width / WIDTH)
                optimizer.step()
            trial.report(loss=trial.config["lr"] * (1 if width < WIDTH / 2 else -1), began=began)

    space = {"lr": hw.loguniform(1e-4, 1e-2)}
    return hw.Study(
        train,
        space=space,
        metric="loss",
        storage=path / "s.db",
        name="s",
        executor="inline",
        lanes=1,
        packing=None,
        surrogate=surrogate,
    )


def run(
    study: hw.Study, clock: JumpingClock, seconds: float | None, num_trials: int | None = 8, *, is_new: bool = True
) -> Result:
    limits = Limits(num_trials=num_trials, deadline=Deadline.start(seconds, clock))
    return study.run_within(limits, Silence(), is_new=is_new)


def list_stages(path: Path) -> list[str]:
    with open_store(path / "s.db") as store:
        return [info.name.partition(".")[2].partition("-")[0] for info in store.studies()]


@pytest.mark.parametrize(
    ("seconds", "stages", "said"),
    [
        (None, ["", "at", "at", "at", "target"], None),
        (110, ["", "at", "at", "at", "target"], None),
        (80, ["", "at", "at", "target"], "the check of the ranking at 1/1 of the width is left out"),
        (60, ["", "at", "target"], "training the best 4 again at 1/2 of the width is left out"),
        (45, ["", "target"], "the check of the ranking at 1/2 of the width is left out"),
        (25, ["", "target"], "the time budget of 25 s is used up but for the 13 s that the target needs"),
        (13, ["", "target"], "the time budget of 13 s is used up but for the 13 s that the target needs"),
        (9, [""], "the target is not trained: its 18 steps of 500 ms take about 9 s, more than the"),
    ],
)
def test_the_least_useful_is_left_out_first_and_the_target_last(
    tmp_path: Path, seconds: float | None, stages: list[str], said: str | None
) -> None:
    clock = JumpingClock()
    result = run(make_study(clock, tmp_path), clock, seconds)
    assert list_stages(tmp_path) == stages
    assert (result.target is not None) == ("target" in stages)
    assert (result.trust is not None) == ("at" in stages)
    if said is None:
        assert result.ended_early is None
    else:
        assert result.ended_early is not None
        assert said in result.ended_early
        with open_store(tmp_path / "s.db") as store:
            assert any(said in note.text for note in read_study(store, "s", "").notes)
    if seconds is not None:
        assert clock() <= 1000 + seconds + TARGET_EPOCH_S
    if result.target is not None:
        assert result.target.status is Status.COMPLETED


def test_a_loader_that_tells_of_more_steps_than_are_taken_does_not_cost_the_target(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path, replace(SURROGATE, num_checked=0), num_read=20 * len(DATA))
    result = run(study, clock, 30)
    assert result.target is not None
    assert result.target.status is Status.COMPLETED
    assert clock() <= 1030


def test_a_search_that_is_cut_leaves_the_target_all_it_needs(tmp_path: Path) -> None:
    clock = JumpingClock()
    result = run(make_study(clock, tmp_path), clock, 30, num_trials=10**9)
    assert 1 < sum(trial.status is Status.COMPLETED for trial in result.trials) < 20
    assert result.target is not None
    assert result.target.status is Status.COMPLETED
    assert clock() <= 1030


def test_a_target_that_does_not_fit_is_trained_by_a_resumed_run(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path, replace(SURROGATE, num_checked=0))
    cut = run(study, clock, 9)
    assert cut.target is None
    assert cut.ended_early is not None
    assert "time budget of 9 s" in cut.ended_early
    assert cut.best == cut.ranked[0]
    result = run(study, clock, None, None, is_new=False)
    assert result.target is not None
    assert result.target.status is Status.COMPLETED


def test_a_target_under_way_at_the_deadline_is_cut_at_its_next_report_and_gone_on_with(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path, replace(SURROGATE, num_checked=0))
    slow = replace(study, train=delay_epochs(study, clock, 4.0))
    cut = run(slow, clock, 20, num_trials=1)
    assert cut.target is not None
    assert cut.target.epochs < NUM_EPOCHS
    assert cut.target.metrics["began"] < 1020
    assert cut.ended_early is not None
    assert "the target was cut after" in cut.ended_early
    assert "the time budget of 20 s is used up" in cut.ended_early
    assert cut.load_best_model() is not None
    result = run(slow, clock, None, None, is_new=False)
    assert result.target is not None
    assert result.target.epochs == NUM_EPOCHS
    assert result.target.history[0] == cut.target.history[0]


def test_a_resumed_target_needs_only_what_it_lacks(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path, replace(SURROGATE, num_checked=0))
    slow = replace(study, train=delay_epochs(study, clock, 3.0))
    cut = run(slow, clock, 20, num_trials=1)
    assert cut.target is not None
    left_s = (NUM_EPOCHS - cut.target.epochs) * (TARGET_EPOCH_S + 3.0)
    result = run(slow, clock, left_s + 3, None, is_new=False)
    assert result.target is not None
    assert result.target.status is Status.COMPLETED


def test_as_many_targets_are_tuned_as_fit(tmp_path: Path) -> None:
    clock = JumpingClock()
    surrogate = replace(SURROGATE, num_checked=0, untransferable=["lr"], num_retuned=4)
    result = run(make_study(clock, tmp_path, surrogate), clock, 45)
    assert result.ended_early is not None
    assert "2 of 4 targets are left out" in result.ended_early
    assert result.target is not None


def test_where_only_time_ends_the_search_half_of_it_goes_into_targets_of_the_best(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path)
    result = run(study, clock, 60, num_trials=None)
    with open_store(tmp_path / "s.db") as store:
        (name,) = [info.name for info in store.studies() if ".target-" in info.name]
        notes = [note.text for note in read_study(store, "s", "").notes]
        targets = read_study(store, name, "").result.trials
    assert len(targets) == 2
    assert result.target is not None
    assert result.target.value("loss") == min(trial.value("loss") for trial in targets)
    assert any("there is time for more targets, with those of " in note for note in notes)
    assert clock() <= 1060
    again = run(study, clock, None, None, is_new=False)
    assert again.target is not None
    assert again.ended_early is None


def test_a_scale_is_chosen_in_a_part_of_the_time(tmp_path: Path) -> None:
    clock = JumpingClock()
    study = make_study(clock, tmp_path, replace(SURROGATE, scale="auto"))
    result = run(study, clock, 40)
    assert result.ended_early is not None
    assert "no time is left to compare more widths: the scale is 8" in result.ended_early
    assert result.target is not None
    assert clock() <= 1040 + TARGET_EPOCH_S


def delay_epochs(study: hw.Study, clock: JumpingClock, seconds: float) -> Callable[[hw.Trial], None]:
    """Return the study's function with reports that take longer than its steps tell."""

    def train(trial: hw.Trial) -> None:
        report = trial.report

        def report_late(**metrics: float) -> None:
            clock.jump(seconds)
            report(**metrics)

        trial.report = report_late  # type: ignore[method-assign]  # stands for a slow evaluation
        study.train(trial)

    return train
