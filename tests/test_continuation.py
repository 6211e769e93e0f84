"""Studies whose searches pause trials: every trial reports the numbers that it would report without a pause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.search import PBT
from headwater.store import open_store
from headwater.trials import Report, Result, Status

inputs = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(5, 4)


def make(trial: hw.Trial) -> tuple[Any, Any]:
    model = trial.prepare_model(nn.Linear(4, 1).double())
    return model, trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])


def train_once(model: Any, optimizer: Any) -> float:
    optimizer.zero_grad()
    loss = (model(inputs) - 1 + torch.randn(1, dtype=torch.float64)).square().mean()
    loss.backward()
    optimizer.step()
    value: float = loss.item()
    return value


def best_so_far(trial: hw.Trial) -> None:
    model, optimizer = make(trial)
    best = float("inf")
    for _ in trial.epochs(9):
        loss = train_once(model, optimizer)
        if loss < best:
            best = loss
        trial.report(loss=loss, best=best)


def count_up() -> Iterator[int]:
    yield from range(100)


def with_generator(trial: hw.Trial) -> None:
    model, optimizer = make(trial)
    numbers = count_up()
    for _ in trial.epochs(9):
        trial.report(loss=train_once(model, optimizer), number=next(numbers))


def run(function: Any, storage: Path | None = None, num_trials: int = 9, **settings: Any) -> Result:
    space = {"lr": hw.loguniform(0.01, 0.3)}
    place = None if storage is None else str(storage)
    study = hw.Study(function, space=space, metric="loss", storage=place, executor="inline", seed=1, **settings)
    return study.run(num_trials=num_trials)


def notes_of(storage: Path) -> list[str]:
    with open_store(str(storage), create=False) as store:
        return [note.text for note in store.notes(store.study().id)]


@pytest.mark.parametrize("lanes", [1, "auto"])
def test_the_best_so_far_is_the_best_so_far_under_asha(lanes: object) -> None:
    result = run(best_so_far, search="asha", max_epochs=9, lanes=lanes)
    assert {trial.epochs for trial in result.trials} == {1, 3, 9}
    for trial in result.trials:
        losses = [report.metrics["loss"] for report in trial.history]
        best = [report.metrics["best"] for report in trial.history]
        assert best == pytest.approx([min(losses[: place + 1]) for place in range(len(losses))], rel=1e-12)


def test_a_trial_that_cannot_be_continued_is_trained_again_and_the_study_says_so_first(tmp_path: Path) -> None:
    result = run(with_generator, tmp_path / "a.db", search="asha", max_epochs=9, lanes=1)
    line = with_generator.__code__.co_firstlineno + 2
    (note,) = [text for text in notes_of(tmp_path / "a.db") if "trained again from its beginning" in text]
    assert f"`numbers` (test_continuation.py:{line}) is a generator in the middle" in note
    assert "trial.keep(name=value)" in note
    assert {trial.epochs for trial in result.trials} == {1, 3, 9}
    for trial in result.trials:
        assert [report.metrics["number"] for report in trial.history] == [*range(trial.epochs)]


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_function_that_reads_the_files_it_writes_is_trained_again(tmp_path: Path, lanes: int) -> None:
    best = tmp_path / "best.pt"

    def train(trial: hw.Trial) -> None:
        model, optimizer = make(trial)
        for epoch in trial.epochs(9):
            loss = train_once(model, optimizer)
            if epoch % 2 == 0:
                torch.save(model.state_dict(), best)
            else:
                model.load_state_dict(torch.load(best))
            trial.report(loss=loss)

    paused = run(train, tmp_path / "a.db", search="asha", max_epochs=9, lanes=lanes)
    straight = run(train, max_epochs=9, lanes=1)
    assert [text for text in notes_of(tmp_path / "a.db") if "writes best.pt" in text and "`load`" in text]
    for one, other in zip(paused.trials, straight.trials, strict=True):
        losses = [report.metrics["loss"] for report in other.history]
        assert [report.metrics["loss"] for report in one.history] == pytest.approx(losses[: one.epochs], rel=1e-6)


def test_a_search_that_never_pauses_notes_nothing(tmp_path: Path) -> None:
    run(with_generator, tmp_path / "a.db", num_trials=2, lanes=1)
    assert not [text for text in notes_of(tmp_path / "a.db") if "again" in text]


def test_a_function_that_counts_its_own_epochs_is_not_paused_silently(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        model, optimizer = make(trial)
        for _ in range(9):
            trial.report(loss=train_once(model, optimizer))

    run(train, tmp_path / "a.db", search="asha", max_epochs=9, lanes=1)
    assert any("does not count its epochs by trial.epochs" in text for text in notes_of(tmp_path / "a.db"))


def test_a_copy_of_a_trial_that_cannot_be_continued_ends_the_study() -> None:
    with pytest.raises(StudyError, match=r"`numbers` \(test_continuation.py:\d+\) is a generator .*trial.keep"):
        run(with_generator, search=PBT(interval=2, population=4, max_epochs=8), lanes=1)


def test_a_copy_keeps_its_own_settings_and_takes_over_the_state_of_the_loop() -> None:
    def train(trial: hw.Trial) -> None:
        model, optimizer = make(trial)
        rate, losses = trial.config["lr"], []
        for epoch in trial.epochs(8):
            losses.append(train_once(model, optimizer))
            trial.report(loss=losses[-1], count=len(losses) - epoch, lr=optimizer.param_groups[0]["lr"], rate=rate)

    result = run(train, num_trials=8, search=PBT(interval=2, population=4, max_epochs=8), lanes=1)
    reports = [(trial.config["lr"], report.metrics) for trial in result.trials for report in trial.history]
    assert {metrics["count"] for _, metrics in reports} == {1.0}
    assert all(metrics["lr"] == metrics["rate"] == rate for rate, metrics in reports)


def test_a_copy_with_an_optimizer_that_was_not_prepared_ends_the_study() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 1).double())
        optimizer = torch.optim.SGD(model.parameters(), lr=trial.config["lr"])
        for _ in trial.epochs(8):
            trial.report(loss=train_once(model, optimizer))

    with pytest.raises(StudyError, match=r"`optimizer` .* not prepared, .* make it by trial.prepare_optimizer"):
        run(train, search=PBT(interval=2, population=4, max_epochs=8), lanes=1)


def test_a_trial_that_is_trained_again_and_differs_fails() -> None:
    calls = iter(range(1000))

    def train(trial: hw.Trial) -> None:
        for _ in range(9):
            trial.report(loss=float(next(calls)))

    result = run(train, search="asha", max_epochs=9, lanes=1)
    failed = [trial for trial in result.trials if trial.status is Status.FAILED]
    assert failed
    assert all("trained again from its beginning, and epoch 1 has loss=" in str(trial.error) for trial in failed)


class Told(Callback):
    """Keeps how many reports came at a time."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.counts.append(len(reports))


def test_callbacks_hear_nothing_of_epochs_that_are_trained_again() -> None:
    told = Told()
    result = run(with_generator, search="asha", max_epochs=9, lanes=1, callbacks=[told])
    assert sum(told.counts) == sum(len(trial.history) for trial in result.trials)
    assert min(told.counts) == 1
