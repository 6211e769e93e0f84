"""What a study makes of its trials' reports, and whom it shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from torch import nn

import headwater as hw
from headwater.errors import StudyError
from headwater.report import Callback, Pulse, Silence
from headwater.trials import Report, Result, Status

CURVES = {"early": [0.1, 0.5, 0.9], "late": [0.9, 0.5, 0.3]}


class Pulses(Silence):
    def __init__(self) -> None:
        self.last: Pulse | None = None

    def pulse(self, pulse: Pulse) -> None:
        self.last = pulse


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def follow_curve(trial: hw.Trial) -> None:
    for epoch in trial.epochs(3):
        trial.report(loss=CURVES[trial.config["kind"]][epoch])


def leave_out(trial: hw.Trial) -> None:
    """Report no loss at the epoch that the configuration names."""
    for epoch in trial.epochs(4):
        if epoch + 1 == trial.config["gap"]:
            trial.report(other=1.0, third=2.0)
        else:
            trial.report(loss=trial.config["lr"] / (epoch + 1))


STUDY = hw.Study(follow_curve, space={"kind": hw.grid(list(CURVES))}, metric="loss", storage=None, lanes=1)
SPACE = {"lr": hw.uniform(0.1, 1), "gap": hw.grid([0, 3])}


def statuses(result: Result) -> list[tuple[int, Status, int]]:
    return [(trial.config["gap"], trial.status, trial.epochs) for trial in result.trials]


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_best_that_is_shown_is_that_of_the_result(num_seeds: int) -> None:
    watcher = Pulses()
    result = replace(STUDY, num_seeds=num_seeds).run(num_trials=2, watcher=watcher)
    assert watcher.last is not None
    assert (watcher.last.best_number, watcher.last.best_value) == (result.best.number, result.best.value("loss"))
    assert (watcher.last.num_done, watcher.last.num_total) == (2, 2)


def test_weights_of_a_trial_that_diverges_are_not_kept_as_the_best(tmp_path: Path) -> None:
    def diverge(trial: hw.Trial) -> None:
        for epoch in trial.epochs(2):
            trial.report(loss=0.1 if epoch == 0 and trial.config["bad"] else float("nan" if trial.config["bad"] else 1))

    study = replace(STUDY, train=diverge, space={"bad": hw.grid([False, True])}, storage=tmp_path / "study.db")
    result = replace(study, save_every=1).run(num_trials=2)
    assert [path.stem for path in tmp_path.rglob("*.safetensors")] == [
        f"best-{result.best.number}-{result.best.epochs}"
    ]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("search", ["random", "median", "asha", "tpe"])
def test_a_trial_that_leaves_the_metric_out_fails_alone(lanes: int, search: str) -> None:
    study = replace(STUDY, train=leave_out, space=SPACE, lanes=lanes, search=search, max_epochs=4)
    result = study.run(num_trials=8)
    failed = [trial for trial in result.trials if trial.status is Status.FAILED]
    assert failed
    assert all((trial.config["gap"], trial.epochs) == (3, 2) for trial in failed)
    assert result.best.status is not Status.FAILED
    for part in ("the metric 'loss'", "reported only 'other', 'third' at epoch 3", "report 'loss' at every epoch"):
        assert part in str(failed[0].error)


@pytest.mark.parametrize("search", ["random", "median", "halving"])
def test_a_study_with_such_trials_goes_on(tmp_path: Path, search: str) -> None:
    study = replace(STUDY, train=leave_out, space=SPACE, search=search, max_epochs=4)
    stored = replace(study, storage=tmp_path / "study.db")
    assert stored.run(num_trials=12, target=0.13).ended_early
    assert statuses(stored.resume()) == statuses(study.run(num_trials=12))


def test_a_metric_that_no_trial_has_ever_reported_ends_the_study() -> None:
    study = replace(STUDY, train=leave_out, space={"lr": 0.1, "gap": 1})
    with pytest.raises(StudyError, match=r"'loss'.*reported only 'other', 'third' at epoch 1"):
        study.run(num_trials=1)


def test_a_run_is_shown_where_the_standard_error_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    STUDY.run(num_trials=2, watcher=Silence())
    assert shown.getvalue() == ""
    STUDY.run(num_trials=2)
    assert "best loss 0.3 (trial 1)" in shown.getvalue()


def test_a_run_writes_lines_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    STUDY.run(num_trials=2)
    out, err = capfd.readouterr()
    assert out == ""
    first, *_, last = err.splitlines()
    assert first == "[0:00] study follow_curve-1: 2 trials"
    assert "2/2 trials, best loss 0.3 (trial 1)" in last


def test_what_shows_a_run_is_imported_when_it_is_needed() -> None:
    script = "import sys, headwater.study; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


class InterruptAt(Callback):
    """Asks to stop as Ctrl-C does, when a trial has reported this epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_reports(self, reports: Sequence[Report]) -> None:
        if any(report.epoch == self.epoch for report in reports):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_weights_of_a_trial_that_was_cut_are_those_of_its_last_report(tmp_path: Path) -> None:
    def train(trial: hw.Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1, bias=False))
        optimizer = trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])
        for _ in trial.epochs(9):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            with torch.no_grad():
                trial.report(loss=model(torch.ones(1, 1)).sum())

    study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", storage=tmp_path / "s.db", save_every=100)
    cut = replace(study, callbacks=[InterruptAt(3)]).run(num_trials=1)
    later = replace(study, callbacks=[InterruptAt(5)]).resume()
    for result, num_epochs in ((cut, 3), (later, 5)):
        assert result.was_interrupted
        assert result.best.epochs == num_epochs
    weight = next(later.load_best_model().parameters()).item()
    assert weight == pytest.approx(later.best.value("loss"))
