"""A study in an Optuna storage is the study, in Optuna's words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

import headwater as hw
from headwater.errors import StudyError
from headwater.report.mirroring import Mirror, open_storage
from headwater.space import Space
from headwater.store import Recorder, Store, StudyInfo, Transition, open_store
from headwater.trials import Lane, Report, Result, Status

SPACE = {
    "lr": hw.loguniform(1e-3, 1.0),
    "width": hw.qloguniform(16, 128, 16),
    "drop": hw.quniform(0.0, 0.5, 0.1),
    "opt": {
        "kind": hw.choice([dict, len, None]),
        "momentum": lambda config: hw.uniform(0, 1) if config["opt"]["kind"] is dict else None,
    },
    "constant": 3,
}


def train(trial: hw.Trial) -> None:
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] / (epoch + 1), other=float(epoch))


STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1)


@pytest.fixture
def storage() -> InMemoryStorage:
    return InMemoryStorage()


def load(path: Path, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}")


# A study that runs


def test_a_mirrored_study_is_the_study(tmp_path: Path) -> None:
    result = replace(STUDY, callbacks=[hw.OptunaMirror(tmp_path / "optuna.db")]).run(num_trials=12)
    mirrored = load(tmp_path / "optuna.db", result.study)
    assert mirrored.best_trial.number == result.best.number
    assert mirrored.best_value == result.best.value("loss")
    assert mirrored.direction is optuna.study.StudyDirection.MINIMIZE
    for ours, theirs in zip(result.trials, mirrored.trials, strict=True):
        assert (theirs.number, theirs.state) == (ours.number, TrialState.COMPLETE)
        assert theirs.intermediate_values == {report.epoch: report.metrics["loss"] for report in ours.history}
        assert theirs.params["lr"] == ours.config["lr"]
        assert ("opt.momentum" in theirs.params) == (ours.config["opt"]["kind"] is dict)
        assert theirs.user_attrs["config.constant"] == 3
        assert theirs.user_attrs["metrics.other"] == 2.0


def test_what_optuna_computes_works_on_it(storage: InMemoryStorage) -> None:
    result = replace(STUDY, callbacks=[hw.OptunaMirror(storage)]).run(num_trials=20)
    mirrored = optuna.load_study(study_name=result.study, storage=storage)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the evaluator is an experiment of Optuna's
        importances = optuna.importance.get_param_importances(mirrored, evaluator=evaluator)
    assert max(importances, key=lambda name: importances[name]) == "lr"


def test_plots_of_optuna_work_on_it(storage: InMemoryStorage) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    result = replace(STUDY, callbacks=[hw.OptunaMirror(storage)]).run(num_trials=12)
    mirrored = optuna.load_study(study_name=result.study, storage=storage)
    for plot in (optuna.visualization.plot_slice, optuna.visualization.plot_intermediate_values):
        assert plot(mirrored).data


def test_trials_that_stop_early_are_pruned(storage: InMemoryStorage) -> None:
    mirror = hw.OptunaMirror(storage, every_s=0.0)
    study = replace(STUDY, search="asha", max_epochs=9, callbacks=[mirror])

    def train_long(trial: hw.Trial) -> None:
        for epoch in trial.epochs(9):
            trial.report(loss=trial.config["lr"] / (epoch + 1))

    result = replace(study, train=train_long).run(num_trials=9)
    states = {trial.number: trial.state for trial in optuna.load_study(study_name=result.study, storage=storage).trials}
    expected = {
        Status.COMPLETED: TrialState.COMPLETE,
        Status.STOPPED: TrialState.PRUNED,
        Status.PAUSED: TrialState.PRUNED,
    }
    assert states == {trial.number: expected[trial.status] for trial in result.trials}
    assert {TrialState.COMPLETE, TrialState.PRUNED} == set(states.values())


def test_trials_that_fail_or_diverge_have_failed(storage: InMemoryStorage) -> None:
    def fragile(trial: hw.Trial) -> None:
        if trial.config["kind"] == "raises":
            raise ValueError("no data")
        for _ in trial.epochs(2):
            trial.report(loss=math.nan if trial.config["kind"] == "nan" else 1.0)

    space = {"kind": hw.grid(["fine", "raises", "nan"])}
    mirror = hw.OptunaMirror(storage)
    result = replace(STUDY, train=fragile, space=space, callbacks=[mirror]).run()
    trials = optuna.load_study(study_name=result.study, storage=storage).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL]
    assert trials[1].user_attrs["error"] == "ValueError: no data"
    assert math.isnan(trials[2].intermediate_values[1])


def test_the_storage_is_filled_while_the_study_runs(storage: InMemoryStorage) -> None:
    seen: list[tuple[TrialState, int]] = []

    class Look(hw.Callback):
        def on_reports(self, reports: Sequence[Report]) -> None:
            last = storage.get_all_trials(0)[-1]
            seen.append((last.state, len(last.intermediate_values)))

    callbacks = [hw.OptunaMirror(storage, every_s=0.0), Look()]
    replace(STUDY, callbacks=callbacks).run(num_trials=2)
    assert seen[0] == (TrialState.RUNNING, 1)
    assert [trial.state for trial in storage.get_all_trials(0)] == [TrialState.COMPLETE] * 2


def test_replicas_are_one_trial(storage: InMemoryStorage) -> None:
    callbacks = [hw.OptunaMirror(storage, every_s=0.0)]
    result = replace(STUDY, num_seeds=2, callbacks=callbacks).run(num_trials=3)
    mirrored = optuna.load_study(study_name=result.study, storage=storage)
    assert [trial.value for trial in mirrored.trials] == [trial.value("loss") for trial in result.trials]


def test_a_resumed_study_goes_on_in_the_same_mirror(tmp_path: Path) -> None:
    callbacks = [hw.OptunaMirror(tmp_path / "optuna.db")]
    study = replace(STUDY, storage=tmp_path / "study.db", callbacks=callbacks)
    study.run(num_trials=2)
    result = study.resume(num_trials=5)
    mirrored = load(tmp_path / "optuna.db", result.study)
    assert [trial.value for trial in mirrored.trials] == [trial.value("loss") for trial in result.trials]


def test_another_study_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    study = replace(STUDY, callbacks=[hw.OptunaMirror(tmp_path / "optuna.db")])
    study.run(num_trials=1)
    with pytest.raises(StudyError, match="another study named 'train-1'"):
        study.run(num_trials=1)
    assert len(load(tmp_path / "optuna.db", "train-1").trials) == 1


def test_a_storage_that_fails_does_not_end_the_study() -> None:
    class Broken(InMemoryStorage):
        def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
            raise StorageInternalError("the disk is full")

    with pytest.warns(UserWarning, match=r"the disk is full; `headwater mirror`"):
        result = replace(STUDY, callbacks=[hw.OptunaMirror(Broken())]).run(num_trials=2)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 2


# From a record


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        space = Space({"lr": hw.uniform(0, 1)})
        rows = [asdict(row) for row in space.describe()]
        store.create_study(StudyInfo(name="digits-1", metric="accuracy", mode="max", seed=3, space=rows))
        recorder = Recorder(store, store.study(), space)
        recorder.add([Lane(number=number, config={"lr": number / 10}, seed=0) for number in range(4)])
        recorder.write(
            [Report(number=number, epoch=1, metrics={"accuracy": number / 10}) for number in range(3)],
            [
                Transition(number=0, status=Status.PAUSED, epoch=1, seconds=2.0),
                Transition(number=1, status=Status.COMPLETED, epoch=1, seconds=2.0),
            ],
        )
        recorder.note("lanes", "lanes part by `lr`", [Lane(number=1, config={"lr": 0.1}, seed=0)])
        yield store


def test_paused_trials_are_pruned_when_all_is_over(store: Store, storage: InMemoryStorage) -> None:
    mirror = Mirror(storage, store.study(), store)
    assert mirror.sync(is_over=False) == 3  # the fourth has not begun
    states = [trial.state for trial in storage.get_all_trials(0)]
    assert states == [TrialState.RUNNING, TrialState.COMPLETE, TrialState.RUNNING]
    mirror.sync(is_over=True)
    first, second, _ = storage.get_all_trials(0)
    assert (first.state, first.value) == (TrialState.PRUNED, 0.0)
    assert second.duration is not None
    assert second.duration.total_seconds() == pytest.approx(2.0)
    assert second.user_attrs["notes"] == ["lanes part by `lr`"]


def test_a_pruned_trial_that_goes_on_after_all_is_written_anew(store: Store, storage: InMemoryStorage) -> None:
    Mirror(storage, store.study(), store).sync(is_over=True)
    recorder = Recorder(store, store.study(), Space({"lr": hw.uniform(0, 1)}))
    done = [Transition(number=0, status=Status.COMPLETED, epoch=2)]
    recorder.write([Report(number=0, epoch=2, metrics={"accuracy": 0.9})], done)
    Mirror(storage, store.study(), store).sync(is_over=True)
    (study,) = storage.get_all_studies()
    first, *_ = storage.get_all_trials(study._study_id)
    assert (first.state, first.value, len(first.intermediate_values)) == (TrialState.COMPLETE, 0.9, 2)


def test_mirroring_twice_changes_nothing(store: Store, storage: InMemoryStorage) -> None:
    Mirror(storage, store.study(), store).sync(is_over=True)
    before = storage.get_all_trials(0)
    Mirror(storage, store.study(), store).sync(is_over=True)
    assert storage.get_all_trials(0) == before


def test_a_record_of_our_own_is_not_written_into(tmp_path: Path) -> None:
    replace(STUDY, storage=tmp_path / "study.db").run(num_trials=1)
    with pytest.raises(StudyError, match="a record of Headwater's own"):
        open_storage(tmp_path / "study.db")


@pytest.mark.parametrize("target", ["no/such/place.db", "nonsense://x", "mysql://nowhere/x"])
def test_a_storage_that_cannot_be_opened_is_one_message(target: str) -> None:
    with pytest.raises(StudyError, match="cannot be opened"):
        open_storage(target)


def test_a_wrong_url_is_refused_before_anything_runs() -> None:
    with pytest.raises(StudyError, match=r"sqlite:///optuna\.db"):
        hw.OptunaMirror("://")


def test_the_result_is_the_same_with_and_without_a_mirror() -> None:
    def values(result: Result) -> list[float]:
        return [trial.value("loss") for trial in result.trials]

    mirrored = replace(STUDY, callbacks=[hw.OptunaMirror(InMemoryStorage(), every_s=0.0)])
    assert values(mirrored.run(num_trials=4)) == values(STUDY.run(num_trials=4))
