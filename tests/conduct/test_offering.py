"""What a study has learnt is offered to a later one that is made of the same, and to no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headwater as hw
from headwater.conduct.offering import MADE_OF
from headwater.execute import SimulatedExecutor, SimulatedTimes
from headwater.store import open_store
from headwater.trials import Device, Result, SpanPurpose

SPACE = {"lr": hw.loguniform(1e-3, 0.5), "width": hw.grid([4, 8])}


def make_function(num_layers: int = 1) -> Callable[[hw.Trial], None]:
    def train(trial: hw.Trial) -> None:
        torch.manual_seed(0)
        inputs = torch.randn(32, 6)
        targets = inputs.sum(1).gt(0).long()
        width = trial.config["width"]
        hidden = [nn.Linear(width, width) for _ in range(num_layers)]
        model = trial.prepare_model(nn.Sequential(nn.Linear(6, width), *hidden, nn.Linear(width, 2)))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            for _ in range(4):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
            trial.report(loss=loss.item())

    return train


@pytest.fixture
def study(tmp_path: Path) -> hw.Study:
    return hw.Study(
        make_function(), space=SPACE, metric="loss", storage=tmp_path / "study.db", executor="inline", packing=None
    )


def count_measurements(result: Result) -> int:
    with open_store(result.storage, create=False) as store:
        spans = store.spans(store.study(result.study))
    return sum(span.purpose is SpanPurpose.MEASUREMENT for span in spans)


def list_notes(result: Result) -> list[str]:
    with open_store(result.storage, create=False) as store:
        return [note.text for note in store.notes(store.study(result.study).id)]


def table(result: Result) -> list[tuple[Any, ...]]:
    return [
        (trial.number, trial.config, trial.status, [report.metrics["loss"] for report in trial.history])
        for trial in result.trials
    ]


def test_the_second_study_measures_nothing_and_comes_to_the_same(study: hw.Study) -> None:
    first, second = study.run(num_trials=12), study.run(num_trials=12)
    assert count_measurements(first) > 0
    assert count_measurements(second) == 0
    for mine, other in zip(table(first), table(second), strict=True):
        assert mine[:3] == other[:3]
        assert mine[3] == pytest.approx(other[3], rel=1e-5)
    assert [note for note in list_notes(second) if "known from" in note] == ["group sizes known from study train-1"]
    assert not any("known from" in note for note in list_notes(first))
    assert not any(note.startswith("lanes part by") for note in list_notes(second))


def test_a_measurement_that_was_cut_short_holds_for_its_own_run_alone(study: hw.Study) -> None:
    hurried = study.run(num_trials=8, time_budget=1e-6)
    assert all("no time to measure more" in profile.reason for profile in hurried.profiles)
    assert hurried.profiles
    later = study.run(num_trials=8)
    assert count_measurements(later) > 0
    assert not any("no time to measure more" in profile.reason for profile in later.profiles)


def test_what_was_offered_is_handed_on_and_resumed(study: hw.Study) -> None:
    study.run(num_trials=12)
    second = study.run(num_trials=4)
    third = study.run(num_trials=12)
    assert "group sizes known from study train-2" in list_notes(third)
    more = replace(study, name=second.study).resume(num_trials=12)
    assert [count_measurements(result) for result in (second, third, more)] == [0, 0, 0]


def test_a_changed_function_is_measured_again(study: hw.Study) -> None:
    study.run(num_trials=12)
    changed = replace(study, train=make_function(num_layers=2)).run(num_trials=12)
    assert count_measurements(changed) > 0
    assert not any("known from" in note for note in list_notes(changed))


@pytest.mark.parametrize(
    "space",
    [
        {**SPACE, "lr": hw.loguniform(1e-3, 0.4)},
        {**SPACE, "width": hw.grid([4, 16])},
        {**SPACE, "more": 1},
        {"lr": SPACE["lr"], "base": hw.grid([2, 4]), "width": lambda config: config["base"]},
    ],
)
def test_another_space_is_measured_again(study: hw.Study, space: dict[str, Any]) -> None:
    study.run(num_trials=12)
    assert count_measurements(replace(study, space=space).run(num_trials=12)) > 0


def test_a_changed_condition_is_measured_again(study: hw.Study) -> None:
    def condition(factor: int) -> dict[str, Any]:
        return {"lr": SPACE["lr"], "base": hw.grid([2, 4]), "width": lambda config: factor * config["base"]}

    replace(study, space=condition(2)).run(num_trials=12)
    assert count_measurements(replace(study, space=condition(2)).run(num_trials=12)) == 0
    assert count_measurements(replace(study, space=condition(4)).run(num_trials=12)) > 0


def test_another_kind_of_device_is_measured_again(study: hw.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.run(num_trials=12)
    with monkeypatch.context() as patch:
        patch.setattr("headwater.train.machine._name_processor", lambda: "another processor")
        elsewhere = study.run(num_trials=12)
    assert count_measurements(elsewhere) > 0
    assert not any("known from" in note for note in list_notes(elsewhere))
    back = study.run(num_trials=12)
    assert count_measurements(back) == 0
    assert "group sizes known from study train-1" in list_notes(back)


def test_another_number_of_threads_is_another_kind_of_device(study: hw.Study) -> None:
    before = torch.get_num_threads()
    study.run(num_trials=12)
    try:
        torch.set_num_threads(before + 1)
        assert count_measurements(study.run(num_trials=12)) > 0
    finally:
        torch.set_num_threads(before)


def test_packs_count_loading_otherwise(study: hw.Study) -> None:
    study.run(num_trials=12)
    packed = replace(study, packing="cost").run(num_trials=12)
    assert not any("known from" in note for note in list_notes(packed))


def test_a_simulation_offers_nothing(study: hw.Study) -> None:
    times = SimulatedTimes(epoch_s=lambda config, num_lanes, kind: 1.0, num_epochs=2)
    executor = SimulatedExecutor([Device(name="cpu:0", kind="cpu")], lambda config, epoch: {"loss": 1.0}, times)
    replace(study, executor=executor, lanes=1).run(num_trials=4)
    assert count_measurements(study.run(num_trials=12)) > 0


def test_a_study_that_has_learnt_nothing_is_passed_over(study: hw.Study) -> None:
    study.run(num_trials=12)
    replace(study, lanes=1).run(num_trials=1)
    third = study.run(num_trials=12)
    assert count_measurements(third) == 0
    with open_store(third.storage, create=False) as store:
        marks = {store.fact(info.id, MADE_OF) for info in store.studies()}
    assert len(marks) == 1


def test_where_more_lanes_could_pay_they_are_measured(study: hw.Study) -> None:
    study.run(num_trials=4)
    assert count_measurements(study.run(num_trials=40)) > 0
