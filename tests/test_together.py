"""Studies that run together: each has the trials that it would have alone, and those of one function share groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.spans import assert_no_overlap
from torch import nn

import headwater as hw
from headwater.conduct.limits import read_limits
from headwater.errors import StudyError
from headwater.together import Member, run_members
from headwater.trials import Report

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
DATA = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True))
SPACE = {"lr": hw.loguniform(1e-3, 0.1)}


def make_function(calls: list[int] | None = None, scale: float = 1.0) -> Callable[[hw.Trial], None]:
    """Return a training function that notes when it is called: once for each group."""
    noted = [] if calls is None else calls

    def train(trial: hw.Trial) -> None:
        noted.append(1)
        model = trial.prepare_model(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1)))
        loader = trial.prepare_data_loader(DATA, batch_size=8, shuffle=True)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        for _ in trial.epochs(4):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = scale * nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            trial.report(loss=total)

    return train


def make_study(train: Callable[[hw.Trial], None], search: Any = "random", **settings: Any) -> hw.Study:
    settings = {"lanes": 8, "executor": "inline", "packing": None, **settings}
    return hw.Study(train, space=SPACE, metric="loss", search=search, **settings)


class CountingReports(hw.Callback):
    """Counts reports of all trials of a study."""

    num_reports = 0

    def on_reports(self, reports: Sequence[Report]) -> None:
        self.num_reports += len(reports)


def list_values(result: hw.Result) -> list[tuple[int, Any, str, list[float]]]:
    return [
        (one.number, one.config["lr"], one.status.value, [report.metrics["loss"] for report in one.history])
        for one in result.trials
    ]


def check_alike(found: hw.Result, alone: hw.Result) -> None:
    assert [row[:3] for row in list_values(found)] == [row[:3] for row in list_values(alone)]
    for mine, other in zip(list_values(found), list_values(alone), strict=True):
        assert mine[3] == pytest.approx(other[3], rel=1e-5)
    torch.testing.assert_close(found.load_best_model().state_dict(), alone.load_best_model().state_dict())


def test_each_study_has_the_trials_that_it_has_alone() -> None:
    train = make_function()
    searches = ["random", "asha", "tpe"]
    together = hw.run_together([make_study(train, search) for search in searches], [6, 9, 5])
    for search, count, found in zip(searches, [6, 9, 5], together, strict=True):
        check_alike(found, make_study(train, search).run(count, watcher=hw.Silence()))


def test_studies_of_one_function_train_in_common_groups() -> None:
    calls: list[int] = []
    train = make_function(calls)
    hw.run_together([make_study(train), make_study(train), make_study(train)], [2, 4, 2])
    assert len(calls) == 1


def test_a_group_is_no_larger_than_any_of_its_studies_allows() -> None:
    calls: list[int] = []
    train = make_function(calls)
    hw.run_together([make_study(train), make_study(train, lanes=6)], 4)
    assert len(calls) == 2  # of 6 lanes, and of 2


def test_measured_group_sizes_are_known_to_both_and_measured_once() -> None:
    train = make_function()
    first, second = hw.run_together([make_study(train, search, lanes="auto") for search in ("random", "asha")], 6)
    assert len(first.profiles) == 1
    assert second.profiles == first.profiles


def stop_early(trial: hw.Trial) -> None:
    model = trial.prepare_model(nn.Linear(4, 1))
    optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
    for _ in trial.epochs(12):
        loss = nn.functional.mse_loss(model(X), X.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.item())
        if loss.item() < 2.5:
            break


def test_trials_that_are_done_before_their_group_are_done_in_their_own_study() -> None:
    spaces = [{"lr": hw.choice([0.1, 0.2])}, {"lr": hw.choice([0.001, 0.1])}]

    def make(space: dict[str, Any]) -> hw.Study:
        return hw.Study(stop_early, space=space, metric="loss", lanes=8, executor="inline", packing=None)

    alone = [make(space).run(num_trials=4) for space in spaces]
    for found, expected in zip(hw.run_together([make(space) for space in spaces], 4), alone, strict=True):
        check_alike(found, expected)
        assert {len(trial.history) for trial in expected.trials} != {12}


def test_studies_of_other_functions_or_seeds_take_turns() -> None:
    calls: list[int] = []
    train, other = make_function(calls), make_function(calls, scale=2.0)
    studies = [make_study(train), make_study(other), make_study(train, seed=1)]
    together = hw.run_together(studies, 3)
    assert len(calls) == 3
    for study, found in zip(studies, together, strict=True):
        check_alike(found, study.run(3, watcher=hw.Silence()))


def test_each_study_keeps_its_own_record_and_goes_on_from_it(tmp_path: Path) -> None:
    train = make_function()

    def make_both() -> list[hw.Study]:
        return [
            make_study(train, search, storage=tmp_path / f"{search}.db", name="mine", save_every=1)
            for search in ("random", "asha")
        ]

    hw.run_together(make_both(), 3)
    together = hw.run_together(make_both(), 8, resume="auto")
    for search, found in zip(("random", "asha"), together, strict=True):
        alone = make_study(train, search).run(8, watcher=hw.Silence())
        assert sorted(row[1] for row in list_values(found)) == sorted(row[1] for row in list_values(alone))
        assert found.storage == str(tmp_path / f"{search}.db")
        assert_no_overlap(tmp_path / f"{search}.db")


def test_a_trial_that_raises_fails_in_its_own_study() -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=0.1)
        for _ in trial.epochs(2):
            optimizer.zero_grad()
            loss = (model(X) * trial.config["lr"]).mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item())
        if trial.config["lr"] > 0.05:
            raise ValueError("too fast")

    studies = [make_study(train, search) for search in ("random", "tpe")]
    for study, found in zip(studies, hw.run_together(studies, 6), strict=True):
        alone = study.run(6, watcher=hw.Silence())
        assert [row[:3] for row in list_values(found)] == [row[:3] for row in list_values(alone)]


def test_lanes_that_part_are_told_to_their_own_studies() -> None:
    def train(trial: hw.Trial) -> None:
        width = 8 if trial.config["lr"] > 0.01 else 4
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1)))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item())

    studies = [make_study(train, search) for search in ("random", "tpe")]
    for study, found in zip(studies, hw.run_together(studies, 6), strict=True):
        check_alike(found, study.run(6, watcher=hw.Silence()))


def test_worker_processes_train_for_several_studies() -> None:
    train = make_function()
    studies = [make_study(train, search, executor="processes", devices=2) for search in ("random", "asha")]
    together = hw.run_together(studies, 6)
    for search, found in zip(("random", "asha"), together, strict=True):
        check_alike(found, make_study(train, search).run(6, watcher=hw.Silence()))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"executor": "processes"}, "studies that run together have the same executor"),
        ({"surrogate": 2}, "a study with a surrogate runs by itself"),
    ],
)
def test_what_cannot_run_together_is_refused(settings: dict[str, Any], told: str) -> None:
    train = make_function()
    with pytest.raises(StudyError, match=told):
        hw.run_together([make_study(train), make_study(train, **settings)], 2)


def test_each_study_needs_its_number_of_trials() -> None:
    with pytest.raises(StudyError, match="num_trials has 1 numbers for 2 studies"):
        hw.run_together([make_study(make_function())] * 2, [3])


def test_a_study_ends_and_hears_of_it_while_others_go_on_in_the_same_group() -> None:
    calls: list[int] = []
    train = make_function(calls)
    counting = CountingReports()
    heard: list[tuple[str, int, int]] = []

    def note(name: str, result: hw.Result) -> None:
        heard.append((name, sum(len(trial.history) for trial in result.trials), counting.num_reports))

    run_members(
        [
            Member(study=study, limits=read_limits(2, None, target), on_result=partial(note, name))
            for name, study, target in (
                ("soon content", make_study(train), 1e9),
                ("never content", make_study(train, callbacks=[counting]), None),
            )
        ],
        may_resume=False,
    )
    assert heard == [("soon content", 2, 2), ("never content", 8, 8)]
    assert len(calls) == 1


def test_a_study_that_cannot_run_hears_why_and_the_others_run(tmp_path: Path) -> None:
    train = make_function()
    heard: list[str] = []
    hw.run_together([make_study(train, storage=tmp_path / "mine.db", name="mine")], 2)
    run_members(
        [
            Member(
                study=make_study(train, search, storage=tmp_path / f"{name}.db", name=name),
                limits=read_limits(2, None, None),
                on_result=lambda result: heard.append(result.study),
                on_refusal=lambda error: heard.append(str(error)),
            )
            for name, search in (("mine", "tpe"), ("other", "random"))
        ],
        may_resume=True,
    )
    assert "was recorded with search 'random', but this one has 'tpe'" in heard[0]
    assert heard[1] == "other"


def test_a_study_that_waits_has_its_turn_and_both_have_the_trials_that_they_have_alone() -> None:
    """They differ in their seeds, so that they share no groups; after two epochs it is the other's turn."""
    train = make_function()
    counting = CountingReports()
    heard: list[tuple[hw.Result, int]] = []
    studies = [make_study(train), make_study(train, seed=1, callbacks=[counting])]

    def note(result: hw.Result) -> None:
        heard.append((result, counting.num_reports))

    members = [Member(study=study, limits=read_limits(2, None, None), on_result=note) for study in studies]
    run_members(members, may_resume=False, turn_s=0.0)
    assert [count for _, count in heard] == [4, 8]
    for study, (found, _) in zip(studies, heard, strict=True):
        check_alike(found, replace(study, callbacks=()).run(2, watcher=hw.Silence()))
