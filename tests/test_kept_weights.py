"""The weights of the best trial are kept, however the function counts its epochs and wherever it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app

X = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)
SPACE = {"lr": hw.choice([0.01, 0.05, 0.1, 0.3])}


def step(model: Any, optimizer: Any) -> Any:
    loss = (model(X) - Y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return (model(X) - Y).square().mean().item()


def prepare(trial: hw.Trial) -> tuple[Any, Any]:
    model = trial.prepare_model(nn.Linear(2, 1))
    return model, trial.prepare_optimizer("SGD", model, lr=trial.config["lr"])


def count_by_itself(trial: hw.Trial) -> None:
    model, optimizer = prepare(trial)
    for _epoch in range(4):
        trial.report(loss=step(model, optimizer))


def break_out(trial: hw.Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(20):
        loss = step(model, optimizer)
        trial.report(loss=loss)
        if loss < 1.0:
            break


def report_once_at_the_end(trial: hw.Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in range(4):
        loss = step(model, optimizer)
    trial.report(loss=loss)


def return_the_loss(trial: hw.Trial) -> Any:
    model, optimizer = prepare(trial)
    for _ in range(4):
        loss = step(model, optimizer)
    return loss


def report_twice_an_epoch(trial: hw.Trial) -> None:
    model, optimizer = prepare(trial)
    for _ in trial.epochs(2):
        for _ in range(2):
            trial.report(loss=step(model, optimizer))


TRAININGS = [count_by_itself, break_out, report_once_at_the_end, return_the_loss, report_twice_an_epoch]


def measure(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(X) - Y).square().mean())


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("train", TRAININGS)
def test_the_best_model_has_the_loss_that_was_reported(train: Callable[[hw.Trial], Any], lanes: int) -> None:
    study = hw.Study(train, space=SPACE, metric="loss", lanes=lanes, executor="inline")
    result = study.run(6, watcher=hw.Silence())
    best = min(trial.metrics["loss"] for trial in result.trials)
    assert measure(result.load_best_model()) == pytest.approx(best, rel=1e-5)


def test_trials_that_a_searcher_stops_are_kept_too() -> None:
    study = hw.Study(
        count_by_itself, space=SPACE, metric="loss", executor="inline", search="asha", max_epochs=3, lanes=4
    )
    result = study.run(9, watcher=hw.Silence())
    assert result.best is not None
    assert measure(result.load_best_model()) == pytest.approx(result.best.metrics["loss"], rel=1e-5)


def test_worker_processes_keep_them() -> None:
    study = hw.Study(count_by_itself, space=SPACE, metric="loss", executor="processes", devices=2, lanes=2)
    result = study.run(4, watcher=hw.Silence())
    assert result.best is not None
    assert measure(result.load_best_model()) == pytest.approx(result.best.metrics["loss"], rel=1e-5)


def test_the_command_saves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = hw.Study(
        count_by_itself, space=SPACE, metric="loss", executor="inline", storage="sqlite:///a.db", name="one"
    )
    result = study.run(4, watcher=hw.Silence())
    done = CliRunner().invoke(app, ["best", "one", "--storage", "sqlite:///a.db", "--save", "best.safetensors"])
    assert done.exit_code == 0, done.output
    torch.testing.assert_close(dict(result.load_best_model().state_dict()), load_file("best.safetensors"))
