"""MLflow has the study as a run, and every trial as a run in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import StudyError
from headwater.report import mlflow_logging
from headwater.trials import Report

pytest.importorskip("mlflow", reason="mlflow is not installed")

# MLflow itself uses what its libraries will drop one day.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The ``noload``"),
]


def train(trial: hw.Trial) -> None:
    if trial.config["kind"] == "bad":
        raise ValueError("no data")
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] / (epoch + 1), **{"valid: top@5": 0.5})


SPACE = {"lr": hw.uniform(0.1, 1.0), "opt": {"kind": hw.choice([dict])}, "kind": hw.grid(["a", None, "bad"])}
STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make one database for all tests: it takes MLflow seconds."""
    place = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.chdir(place)
        yield f"sqlite:///{place / 'mlflow.db'}"


def read_runs(uri: str, experiment: str) -> tuple[Any, dict[int, Any]]:  # Any: MLflow's runs
    """Return the run of the study, and those of its trials."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} <= {parent.info.run_id}
    return parent, {int(run.data.tags["headwater.trial"]): run for run in children}


def read_history(uri: str, run: Any, metric: str) -> dict[int, float]:  # Any: as above
    from mlflow import MlflowClient

    return {
        item.step: item.value for item in MlflowClient(tracking_uri=uri).get_metric_history(run.info.run_id, metric)
    }


def test_trials_are_runs_within_the_run_of_the_study(uri: str) -> None:
    result = replace(STUDY, callbacks=[hw.MLflowCallback(uri, "digits")]).run(num_trials=3)
    parent, runs = read_runs(uri, "digits")
    assert (parent.info.run_name, parent.info.status) == (result.study, "FINISHED")
    assert parent.data.metrics["loss"] == result.best.value("loss")
    assert parent.data.tags["headwater.best_trial"] == str(result.best.number)
    assert {number: run.info.status for number, run in runs.items()} == {0: "FINISHED", 1: "FINISHED", 2: "FAILED"}
    assert runs[0].data.params == {"lr": str(result.trials[0].config["lr"]), "opt.kind": "dict", "kind": "a"}
    assert read_history(uri, runs[0], "loss") == {r.epoch: r.metrics["loss"] for r in result.trials[0].history}
    assert read_history(uri, runs[0], "valid_ top_5") == {1: 0.5, 2: 0.5, 3: 0.5}
    assert runs[2].data.tags["headwater.error"] == "ValueError: no data"


def test_a_trial_that_diverges_is_tagged_as_stopped(uri: str) -> None:
    def diverge(trial: hw.Trial) -> None:
        trial.report(loss=math.nan)

    replace(STUDY, train=diverge, callbacks=[hw.MLflowCallback(uri, "stopped")]).run(num_trials=1)
    _, runs = read_runs(uri, "stopped")
    assert runs[0].data.tags["headwater.status"] == "stopped"
    assert math.isnan(runs[0].data.metrics["loss"])


def test_a_resumed_study_goes_on_in_the_same_runs(uri: str, tmp_path: Path) -> None:
    study = replace(STUDY, storage=tmp_path / "study.db", callbacks=[hw.MLflowCallback(uri, "resumed", every_s=0.0)])
    study.run(num_trials=2, time_budget=0.0)
    parent, runs = read_runs(uri, "resumed")
    assert {run.info.status for run in (parent, *runs.values())} == {"KILLED"}
    study.resume()
    parent, runs = read_runs(uri, "resumed")
    assert {run.info.status for run in (parent, *runs.values())} == {"FINISHED"}
    assert [sorted(read_history(uri, runs[number], "loss")) for number in (0, 1)] == [[1, 2, 3]] * 2


def test_a_server_that_fails_does_not_end_the_study(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    def refuse(*_: object, **__: object) -> None:
        raise MlflowException("the server is away")

    class Cut(hw.Callback):
        def on_reports(self, reports: Sequence[Report]) -> None:
            monkeypatch.setattr(MlflowClient, "log_batch", refuse)

    with pytest.warns(UserWarning, match="the server is away"):
        result = replace(STUDY, callbacks=[Cut(), hw.MLflowCallback(uri)]).run(num_trials=1)
    assert result.trials[0].epochs == 3


def test_without_the_library_the_message_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_logging, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"pip install 'headwater\[mlflow\]'"):
        hw.MLflowCallback()
