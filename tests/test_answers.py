"""What a training function that does not report comes to: its answer counts, or it is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import headwater as hw
from headwater.errors import StudyError
from headwater.store import open_store
from headwater.trials import Status

SPACE = {"x": hw.uniform(0, 2)}


def square(trial: hw.Trial) -> float:
    distance: float = (trial.config["x"] - 1) ** 2
    return distance


def learn(trial: hw.Trial) -> dict[str, object]:
    model = trial.prepare_model(nn.Linear(2, 1))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["x"] / 10)
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2)).pow(2).mean()
        loss.backward()
        optimizer.step()
    return {"loss": loss, "other": loss.item()}


@pytest.mark.parametrize("lanes", [1, 4, "auto"])
def test_a_returned_number_is_the_report_of_the_last_epoch(lanes: int | str) -> None:
    result = hw.Study(square, space=SPACE, metric="loss", storage=None, lanes=lanes).run(num_trials=6)
    values = [(trial.config["x"] - 1) ** 2 for trial in result.trials]
    assert [trial.metrics["loss"] for trial in result.trials] == pytest.approx(values)
    assert [trial.status for trial in result.trials] == [Status.COMPLETED] * 6
    assert [trial.epochs for trial in result.trials] == [1] * 6


def test_returned_metrics_of_a_group_belong_to_their_lanes() -> None:
    study = hw.Study(learn, space=SPACE, metric="loss", storage=None, lanes=3)
    result, alone = study.run(num_trials=3), hw.Study(learn, space=SPACE, metric="loss", storage=None, lanes=1).run(3)
    assert [trial.epochs for trial in result.trials] == [3] * 3
    for trial, other in zip(result.trials, alone.trials, strict=True):
        assert trial.metrics == pytest.approx(other.metrics, rel=1e-5)
        assert trial.metrics["loss"] == pytest.approx(trial.metrics["other"])


@pytest.mark.parametrize("lanes", [1, "auto"])
def test_a_function_that_never_reports_is_refused_and_leaves_no_study(tmp_path: Path, lanes: int | str) -> None:
    def forget(trial: hw.Trial) -> str:
        return str(trial.config["x"] > 5)

    study = hw.Study(forget, space=SPACE, metric="loss", storage=tmp_path / "a.db", lanes=lanes)
    with pytest.raises(StudyError, match=r"without a report; call trial.report\(loss=\.\.\.\)"):
        study.run(num_trials=3)
    with open_store(tmp_path / "a.db") as store:
        assert store.studies() == []


def test_one_trial_that_never_reports_has_failed_among_others() -> None:
    def forget_once(trial: hw.Trial) -> None:
        if trial.config["x"] != 2:
            trial.report(loss=trial.config["x"])

    result = hw.Study(forget_once, space={"x": hw.grid([1, 2, 3])}, metric="loss", storage=None, lanes=1).run()
    assert [trial.status for trial in result.trials] == [Status.COMPLETED, Status.FAILED, Status.COMPLETED]
    assert "without a report" in (result.trials[1].error or "")


def test_what_a_function_that_reports_returns_is_its_own_business() -> None:
    def both(trial: hw.Trial) -> float:
        trial.report(loss=1.0)
        return 7.0

    result = hw.Study(both, space=SPACE, metric="loss", storage=None, lanes=1).run(num_trials=1)
    assert [dict(report.metrics) for report in result.trials[0].history] == [{"loss": 1.0}]


def test_a_result_prints_as_a_table() -> None:
    result = hw.Study(square, space={"x": hw.grid([0.0, 1.25, 2.5])}, metric="loss", storage=None, lanes=1).run()
    assert str(result).splitlines() == [
        "study square-1: 3 trials (3 completed)",
        "",
        "rank  trial    loss     x  epochs  status",
        "   1      1  0.0625  1.25       1  completed",
        "   2      0       1     0       1  completed",
        "   3      2    2.25   2.5       1  completed",
    ]


def test_the_package_lists_what_it_has_and_has_what_it_lists() -> None:
    script = "import headwater as hw; hw.search.ASHA(); [getattr(hw, name) for name in dir(hw)]"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert set(hw.__all__) <= set(dir(hw))


def test_a_resumed_study_takes_the_epochs_from_its_record(tmp_path: Path) -> None:
    def count(trial: hw.Trial) -> None:
        for epoch in trial.epochs(9):
            trial.report(loss=epoch)

    place = tmp_path / "a.db"
    hw.Study(count, space=SPACE, metric="loss", storage=place, lanes=1, max_epochs=4).run(num_trials=1)
    result = hw.Study(count, space=SPACE, metric="loss", storage=place, lanes=1).resume(num_trials=2)
    assert [trial.epochs for trial in result.trials] == [4, 4]
    with pytest.raises(StudyError, match="max_epochs is 5, but study 'count-1' ran with 4"):
        hw.Study(count, space=SPACE, metric="loss", storage=place, lanes=1, max_epochs=5).resume()


def test_another_space_is_shown_as_a_difference(tmp_path: Path) -> None:
    place = tmp_path / "a.db"
    space = {"x": hw.uniform(0, 2), "kept": hw.choice([1, 2]), "old": 3}
    hw.Study(square, space=space, metric="loss", storage=place, lanes=1).run(num_trials=1)
    changed = {"x": hw.uniform(0, 3), "kept": hw.choice([1, 2]), "new": hw.randint(1, 5)}
    with pytest.raises(StudyError) as refusal:
        hw.Study(square, space=changed, metric="loss", storage=place, lanes=1).resume()
    assert (
        "another space: x was uniform(0, 2) and is uniform(0, 3); old, 3, is gone; new, randint(1, 5), is new"
    ) in str(refusal.value)
    assert "kept" not in str(refusal.value)
