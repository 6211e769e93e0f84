"""TensorBoard reads back what a study wrote."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import StudyError
from headwater.report import tensorboard_logging

pytest.importorskip("tensorboard", reason="tensorboard is not installed")


def train(trial: hw.Trial) -> None:
    if trial.config["kind"] == "bad":
        raise ValueError("no data")
    for epoch in trial.epochs(3):
        trial.report(loss=trial.config["lr"] / (epoch + 1), **{"valid/accuracy": 0.5})


SPACE = {"lr": hw.uniform(0.1, 1.0), "opt": {"fast": hw.choice([True])}, "kind": hw.grid(["a", None, "bad"]), "n": 3}
STUDY = hw.Study(train, space=SPACE, metric="loss", storage=None, lanes=1)


def read_run(folder: Path) -> Any:  # Any: a library without types
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def read_sessions(folder: Path) -> tuple[Any, Any]:  # Any: as above
    """Return how a trial started, with its hyperparameters, and how it ended."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    contents = read_run(folder).PluginTagToContent(metadata.PLUGIN_NAME)
    start = HParamsPluginData.FromString(contents[metadata.SESSION_START_INFO_TAG]).session_start_info
    end = HParamsPluginData.FromString(contents.get(metadata.SESSION_END_INFO_TAG, b"")).session_end_info
    return start, end


def test_every_trial_is_a_run_with_its_metrics_by_epoch(tmp_path: Path) -> None:
    result = replace(STUDY, callbacks=[hw.TensorBoardCallback(tmp_path)]).run(num_trials=2)
    (home,) = tmp_path.iterdir()
    assert home.name.startswith("train-1-")
    for trial in result.trials:
        run = read_run(home / f"trial-{trial.number}")
        assert run.Tags()["scalars"] == ["loss", "valid/accuracy"]
        written = {event.step: event.value for event in run.Scalars("loss")}
        assert written == pytest.approx({report.epoch: report.metrics["loss"] for report in trial.history})


def test_hyperparameters_go_along(tmp_path: Path) -> None:
    result = replace(STUDY, callbacks=[hw.TensorBoardCallback(tmp_path)]).run(num_trials=3)
    (home,) = tmp_path.iterdir()
    start, end = read_sessions(home / "trial-1")
    values = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
    assert values == {"lr": result.trials[1].config["lr"], "opt.fast": True, "kind": "None", "n": 3}
    assert end.status == 1  # a success
    assert read_sessions(home / "trial-2")[1].status == 2  # a failure


def test_what_is_not_finite_is_written_as_it_is(tmp_path: Path) -> None:
    def diverge(trial: hw.Trial) -> None:
        trial.report(loss=math.nan)

    replace(STUDY, train=diverge, callbacks=[hw.TensorBoardCallback(tmp_path)]).run(num_trials=1)
    (home,) = tmp_path.iterdir()
    assert math.isnan(read_run(home / "trial-0").Scalars("loss")[0].value)


def test_a_resumed_study_goes_on_in_the_same_runs(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Kill(hw.Callback):
        def on_reports(self, reports: Any) -> None:
            if reports[0].epoch == 2:
                raise Killed

    board = hw.TensorBoardCallback(tmp_path / "runs")
    study = replace(STUDY, storage=tmp_path / "study.db", callbacks=[board, Kill()])
    with pytest.raises(Killed):
        study.run(num_trials=1)
    replace(study, callbacks=[board]).resume()
    (home,) = (tmp_path / "runs").iterdir()
    assert [event.step for event in read_run(home / "trial-0").Scalars("loss")] == [1, 2, 3]


def test_replicas_are_runs_of_one_group(tmp_path: Path) -> None:
    replace(STUDY, num_seeds=2, callbacks=[hw.TensorBoardCallback(tmp_path)]).run(num_trials=1)
    (home,) = tmp_path.iterdir()
    assert {path.name for path in home.iterdir()} == {"trial-0-seed-0", "trial-0-seed-1"}
    assert len({read_sessions(path)[0].group_name for path in home.iterdir()}) == 1


def test_without_the_library_the_message_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard_logging, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"pip install 'headwater\[tensorboard\]'"):
        hw.TensorBoardCallback("runs")


def test_writing_needs_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    script = f"""
import sys
import headwater as hw
from headwater.store import open_store, StudyInfo
from headwater.trials import Lane, Report, Status
board = hw.TensorBoardCallback({str(tmp_path)!r})
with open_store() as store:
    board.on_study(StudyInfo(name="x/y", metric="a", mode="max", seed=0), store)
board.on_start([Lane(number=0, config={{"lr": 0.5}}, seed=0)])
board.on_reports([Report(number=0, epoch=1, metrics={{"a": 1.0}})])
board.on_end(0, Status.COMPLETED)
sys.exit("torch" in sys.modules or "tensorflow" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (home,) = tmp_path.iterdir()
    assert read_run(home / "trial-0").Scalars("a")[0].value == 1.0
