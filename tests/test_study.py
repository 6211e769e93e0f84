"""Whole studies on tiny models: what a user sees of the loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Callback
from headwater.trials import Lane, Report, Result, Status

torch.manual_seed(0)
INPUTS = torch.randn(96, 6)
TARGETS = (INPUTS @ torch.randn(6, 3)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)


def train(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)))
    loader = trial.prepare_data_loader(DATA, batch_size=32, shuffle=True)
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
    scheduler = trial.prepare_scheduler(torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=0.9)
    for _ in trial.epochs(4):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        trial.report(loss=total)


SPACE = {"lr": hw.loguniform(1e-3, 0.5)}
STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=4)


def histories(result: Result) -> dict[int, list[float]]:
    return {trial.number: [report.metrics["loss"] for report in trial.history] for trial in result.trials}


def assert_same(first: Result, second: Result) -> None:
    mine, other = histories(first), histories(second)
    assert mine.keys() == other.keys()
    for number in mine:
        assert mine[number] == pytest.approx(other[number], rel=1e-5)


@pytest.mark.parametrize("lanes", [1, 3, 8, "auto"])
def test_the_number_of_lanes_does_not_change_the_answer(lanes: int | str) -> None:
    result = replace(STUDY, lanes=lanes).run(num_trials=8)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 8
    assert_same(result, STUDY.run(num_trials=8))


def test_the_best_trial_has_the_best_last_value() -> None:
    result = STUDY.run(num_trials=8)
    assert result.best.value("loss") == min(values[-1] for values in histories(result).values())
    assert [trial.epochs for trial in result.trials] == [4] * 8


def test_a_trial_that_raises_fails_alone_and_keeps_its_traceback() -> None:
    def fragile(trial: hw.Trial) -> None:
        if trial.config["kind"] == "bad":
            raise RuntimeError("this kind cannot be trained")
        train(trial)

    study = replace(STUDY, train=fragile, space={**SPACE, "kind": hw.grid(["good", "bad", "fine"])})
    result = study.run(num_trials=9)
    failed = [trial for trial in result.trials if trial.status is Status.FAILED]
    assert {trial.config["kind"] for trial in failed} == {"bad"}
    assert len(failed) == 3
    assert all("this kind cannot be trained" in str(trial.error) for trial in failed)
    assert sum(trial.status is Status.COMPLETED for trial in result.trials) == 6


@pytest.mark.parametrize("error", [RuntimeError("only lanes raise this"), MemoryError("only lanes need so much")])
def test_an_error_of_a_group_is_no_result_of_its_last_trial_unless_that_raises_alone(error: Exception) -> None:
    def raising(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(6, 3))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for epoch in trial.epochs(3):
            if epoch == 2 and type(optimizer) is not torch.optim.SGD:
                raise error
            trial.report(loss=torch.log(model.weight.detach().square().sum() * 0 + 0.15 - trial.config["lr"]).item())

    study = hw.Study(raising, space={"lr": hw.choice([0.1, 0.2])}, search="grid", metric="loss", storage=None, lanes=2)
    result = study.run(num_trials=2)
    (last,) = [trial for trial in result.trials if trial.config["lr"] == 0.1]
    assert last.status is Status.COMPLETED, last.error
    assert len(last.history) == 3


def test_a_lane_that_raises_for_a_number_is_found_among_its_group() -> None:
    def fragile(trial: hw.Trial) -> None:
        train(trial)
        worst = trial.config["lr"]
        torch.linspace(0, 1, 3).index_select(0, torch.tensor(int(worst > 0.2) * 7))

    result = replace(STUDY, train=fragile).run(num_trials=8)
    for trial in result.trials:
        assert (trial.status is Status.FAILED) == (trial.config["lr"] > 0.2)


def test_a_nan_metric_stops_its_trial_alone() -> None:
    def diverging(trial: hw.Trial) -> None:
        for epoch in trial.epochs(3):
            trial.report(loss=trial.config["lr"] * (math.nan if epoch == 1 and trial.config["sick"] else 1.0))

    study = replace(STUDY, train=diverging, space={**SPACE, "sick": hw.grid([True, False])})
    result = study.run(num_trials=4)
    assert [trial.status for trial in result.trials] == [Status.STOPPED, Status.COMPLETED] * 2
    assert not result.best.config["sick"]


def test_a_missing_metric_names_what_was_reported() -> None:
    with pytest.raises(StudyError, match=r"'accuracy'.*reported only 'loss'"):
        replace(STUDY, metric="accuracy", mode="max").run(num_trials=2)


def test_an_endless_space_needs_a_number_of_trials() -> None:
    with pytest.raises(StudyError, match="num_trials"):
        STUDY.run()


class Killed(BaseException):
    pass


class KillAt(Callback):
    """Ends the process's work like a kill: nothing is tidied up after this report."""

    def __init__(self, num_reports: int) -> None:
        self.num_left = num_reports

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            raise Killed


@pytest.mark.parametrize("num_reports", [1, 2, 5, 7])
@pytest.mark.parametrize("save_every", [1, 3, "auto", None])
def test_a_resumed_study_ends_like_an_uninterrupted_one(
    tmp_path: Path, num_reports: int, save_every: int | str | None
) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db", save_every=save_every)
    with pytest.raises(Killed):
        replace(study, callbacks=[KillAt(num_reports)]).run(num_trials=6)
    result = study.resume()
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 6
    assert_same(result, STUDY.run(num_trials=6))


def test_a_study_goes_on_to_more_trials(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    study.run(num_trials=3)
    assert_same(study.resume(num_trials=7), STUDY.run(num_trials=7))


def test_another_space_cannot_resume_a_study(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    study.run(num_trials=2)
    with pytest.raises(StudyError, match="space"):
        replace(study, space={"lr": hw.uniform(0.1, 0.2)}).resume()


def test_of_finished_trials_only_the_best_leaves_its_state_behind(tmp_path: Path) -> None:
    result = replace(STUDY, storage=tmp_path / "study.db").run(num_trials=4)
    assert [path.stem for path in tmp_path.rglob("*.safetensors")] == [
        f"best-{result.best.number}-{result.best.epochs}"
    ]


def test_a_target_ends_the_study_early() -> None:
    everything = STUDY.run(num_trials=8)
    result = replace(STUDY, lanes=1).run(num_trials=8, target=everything.best.value("loss"))
    assert sum(len(trial.history) for trial in result.trials) <= sum(len(trial.history) for trial in everything.trials)
    assert result.best.number == everything.best.number


def test_a_used_up_time_budget_leaves_the_rest_for_later(tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db")
    partial = study.run(num_trials=8, time_budget=0.0)
    assert any(not trial.status.is_final for trial in partial.trials)
    assert_same(study.resume(), STUDY.run(num_trials=8))


def test_max_epochs_completes_a_trial_early() -> None:
    result = replace(STUDY, max_epochs=2).run(num_trials=3)
    assert [(trial.status, trial.epochs) for trial in result.trials] == [(Status.COMPLETED, 2)] * 3


def test_callbacks_see_every_event_once() -> None:
    seen: list[str] = []

    class Watch(Callback):
        def on_start(self, lanes: Sequence[Lane]) -> None:
            seen.extend("start" for _ in lanes)

        def on_reports(self, reports: Sequence[Report]) -> None:
            seen.extend("report" for _ in reports)

        def on_end(self, number: int, status: Status) -> None:
            seen.append("end")

        def on_result(self, result: Result) -> None:
            seen.append("result")

    replace(STUDY, callbacks=[Watch()]).run(num_trials=5)
    assert {kind: seen.count(kind) for kind in seen} == {"start": 5, "report": 20, "end": 5, "result": 1}


def test_replicas_start_from_other_weights_and_are_averaged() -> None:
    def draw(trial: hw.Trial) -> None:
        for _ in trial.epochs(2):
            trial.report(loss=torch.rand(()).item(), seed=trial.seed)

    result = replace(STUDY, train=draw, num_seeds=3, seed=5).run(num_trials=2)
    solo = [replace(STUDY, train=draw, seed=seed).run(num_trials=1).trials[0].history for seed in (5, 6, 7)]
    for trial in result.trials:
        assert trial.metrics["seed"] == 6.0
        for epoch, report in enumerate(trial.history):
            mean = sum(history[epoch].metrics["loss"] for history in solo) / 3
            assert report.metrics["loss"] == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("num_reports", [1, 3, 6])
def test_a_study_with_several_seeds_can_be_resumed(tmp_path: Path, num_reports: int) -> None:
    study = replace(STUDY, num_seeds=2, search="halving", max_epochs=4, storage=tmp_path / "study.db")
    with pytest.raises(Killed):
        replace(study, callbacks=[KillAt(num_reports)]).run(num_trials=6)
    assert_same(study.resume(), replace(study, storage=None).run(num_trials=6))


def test_a_new_study_does_not_go_on_from_states_whose_record_is_gone(tmp_path: Path) -> None:
    def study_of(seed: int) -> hw.Study:
        return hw.Study(train_to_the_end, space={"lr": 0.1}, metric="loss", storage=tmp_path / "s.db", seed=seed)

    def train_to_the_end(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        for epoch in trial.epochs(4):
            if epoch == 2 and not (tmp_path / "again").exists():
                raise KeyboardInterrupt
            trial.report(loss=model(torch.ones(1)))

    with pytest.raises(KeyboardInterrupt):
        study_of(0).run()
    assert list(tmp_path.glob("s.db.states/*/0-*.safetensors"))
    (tmp_path / "again").touch()
    (tmp_path / "s.db").unlink()
    assert [report.epoch for report in study_of(1).run().trials[0].history] == [1, 2, 3, 4]


def test_a_trial_whose_state_is_damaged_starts_again(tmp_path: Path) -> None:
    cut = tmp_path / "cut"

    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1))
        for epoch in trial.epochs(3):
            if epoch == 2 and not cut.exists():
                raise KeyboardInterrupt
            trial.report(loss=model(torch.ones(1)))

    study = hw.Study(train, space={"lr": 0.1}, metric="loss", storage=tmp_path / "s.db", name="one")
    with pytest.raises(KeyboardInterrupt):
        study.run()
    cut.touch()
    (path,) = tmp_path.glob("s.db.states/one-*/0-*.safetensors")
    path.write_bytes(path.read_bytes()[:20])
    result = study.resume()
    assert [report.epoch for report in result.trials[0].history] == [1, 2, 3]
    assert result.trials[0].status is Status.COMPLETED


@pytest.mark.parametrize("seed", [0, 1, 3, 4])  # with seed 2 the first five fail alike, which ends the run
def test_trials_that_raise_do_not_disturb_the_choice_of_lanes(seed: int) -> None:
    def train(trial: hw.Trial) -> None:
        if trial.config["lr"] > 0.05:
            raise ValueError("too large")
        layer = trial.prepare_model(nn.Linear(trial.config["width"], 1))
        trial.report(loss=layer(torch.ones(trial.config["width"])))

    space = {"lr": hw.loguniform(1e-2, 0.5), "width": hw.choice([1, 2, 3])}
    result = hw.Study(train, space=space, metric="loss", storage=None, seed=seed).run(num_trials=12)
    assert {trial.status for trial in result.trials} == {Status.COMPLETED, Status.FAILED}


def test_a_kind_that_raises_does_not_keep_the_others_from_training_as_lanes() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        if trial.config["kind"] == "a bad one":
            raise ValueError("no such kind")
        trial.report(loss=model(torch.ones(1, 2)) * trial.config["lr"])

    space = {"lr": hw.uniform(0.1, 1.0), "kind": hw.choice(["a bad one", "good"])}
    result = hw.Study(train, space=space, metric="loss", storage=None, lanes="auto").run(num_trials=12)
    assert [trial.config["kind"] for trial in result.trials[:2]] == ["a bad one"] * 2, "or it would show nothing"
    grouped = {profile.label for profile in result.profiles if profile.num_lanes > 1}
    assert grouped - {"all trials"} == {"kind == 'a bad one' = False"}  # before it was known what parts them, all
    statuses = {trial.config["kind"]: trial.status for trial in result.trials}
    assert statuses == {"a bad one": Status.FAILED, "good": Status.COMPLETED}
