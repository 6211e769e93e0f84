"""An `if` that lanes answer differently: what only assigns is chosen for each lane, anything else makes them part."""

from __future__ import annotations

import copy
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.branch_acts import APART, HOME, LIMIT, TOGETHER, Best, append
from tests.train.lab import run, run_alone
from torch import Tensor, nn

from headwater.fuse import watches
from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

VALUES = (0.2, 0.6, 0.4, 0.8)


def train_on(act: Callable[[Any, Any], Any]) -> Callable[[Trial], None]:
    """Return a training function that reports what an action comes to, of a number that lanes have computed."""

    def train(trial: Trial) -> None:
        HOME.pop("other", None)
        model = trial.prepare_model(nn.Linear(1, 1, bias=False))
        with torch.no_grad():
            number = (model.weight.fill_(1.0) * trial.config["x"]).sum()
            model.weight.mul_(trial.config["x"])
        trial.report(loss=act(number.item(), model))
        trial.report(loss=torch.rand(()).item())

    return train


@pytest.mark.parametrize("act", TOGETHER)
def test_what_only_assigns_is_chosen_for_each_lane(act: Callable[[Any, Any], Any]) -> None:
    train = train_on(act)
    together = run(train, [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    for number, value in enumerate(VALUES):
        alone = run_alone(train, {"x": value})
        assert together.notes.history(number) == pytest.approx(alone.history(0), rel=1e-6)


@pytest.mark.parametrize("act", APART)
def test_anything_else_makes_lanes_part_by_their_answers(act: Callable[[Any, Any], Any]) -> None:
    together = run(train_on(act), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.APART
    assert re.search(r"(branch_acts|test_branches)\.py:\d+", together.reason)


def test_the_note_says_which_side_does_what() -> None:
    together = run(train_on(append), [{"x": value} for value in VALUES])
    assert "the code branches on what lanes computed: one side calls append" in together.reason
    assert together.ending.question is not None
    assert together.ending.question.answers == (False, True, False, True)


def test_a_line_shows_the_lanes_that_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(x: Any, model: Any) -> Any:
        best = 0.0
        if x > LIMIT:
            print(f"better: {x:.1f}")  # noqa: T201 - what is tested
            best = x
        return best

    assert run(train_on(tell), [{"x": value} for value in VALUES]).outcome is Outcome.DONE
    assert capsys.readouterr().out == "better: 0.6\nbetter: 0.8\n"


CALLS = ("print", "save", "copy", "with", "log")


@pytest.mark.parametrize("call", CALLS)
def test_each_lane_shows_and_keeps_as_its_trial_alone(
    call: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")

    def act(x: Any, model: Any) -> Any:
        path, best = f"{tmp_path}/last.pt", 0.0
        FOLDER["path"] = str(tmp_path)
        torch.save({"x": x}, path)
        if x > LIMIT:
            best = x
            keep(call, x, model, path)
        return best

    together = run(train_on(act), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.DONE, together.reason
    lines = ["better: 0.6", "better: 0.8"]
    assert capsys.readouterr().out.splitlines() == (lines if call == "print" else [])
    assert caplog.messages == (lines if call == "log" else [])
    kept = {path.parent.name: torch.load(path) for path in sorted(tmp_path.glob("*/best.pt"))}
    if call in ("save", "with"):
        assert {name: value["weight"].item() for name, value in kept.items()} == pytest.approx(
            {"trial_1": 0.6, "trial_3": 0.8}
        )
    elif call == "copy":
        assert {name: value["x"] for name, value in kept.items()} == pytest.approx({"trial_1": 0.6, "trial_3": 0.8})
    else:
        assert not kept


def keep(call: str, x: Any, model: Any, path: str) -> None:
    """Show or keep something of a lane that is better."""
    best = os.path.join(FOLDER["path"], "best.pt")  # noqa: PTH118 - what is tested
    if call == "print":
        print("better: {:.1f}".format(x))  # noqa: T201, UP032 - what is tested
    elif call == "log":
        logger.info("better: %.1f", x)
    elif call == "copy":
        shutil.copyfile(path, os.path.join(os.path.dirname(path), os.path.basename(best)))  # noqa: PTH118, PTH119, PTH120
    elif call == "with":
        with open(best, "wb") as file:  # noqa: PTH123 - what is tested
            torch.save(model.state_dict(), file)
    else:
        torch.save(model.state_dict(), best)


logger = logging.getLogger(__name__)
FOLDER = {"path": ""}


def test_no_effect_is_left_where_lanes_part(capsys: pytest.CaptureFixture[str]) -> None:
    best = Best()

    def act(x: Any, model: Any) -> Any:
        seen: list[Any] = []
        if x > LIMIT:
            print("shown")  # noqa: T201 - what is tested
            best.score = x
            seen.append(x)
        return best.score

    assert run(train_on(act), [{"x": value} for value in VALUES]).outcome is Outcome.APART
    assert capsys.readouterr().out == ""
    assert best.score == 0.0


def test_lanes_part_where_too_many_tensors_would_have_to_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MAX_WATCHED", 20)

    def act(x: Any, model: Any) -> Any:
        best = torch.zeros(())
        for factor in range(20):
            loss = torch.ones(()) * x * factor
            if loss > best + LIMIT:
                best = loss
        return best.item()

    together = run(train_on(act), [{"x": value} for value in VALUES])
    assert together.outcome is Outcome.APART
    assert "keeps too many tensors" in together.reason


def test_a_kept_number_goes_on_when_lanes_leave() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(1, 1, bias=False).double())
        with torch.no_grad():
            model.weight.fill_(1.0)
        best = torch.full((), torch.inf).double()
        for epoch in trial.epochs(5):
            with torch.no_grad():
                model.weight.mul_(trial.config["x"] + epoch % 2)
                loss = model.weight.sum().clone()
            if loss < best:
                best = loss
            trial.report(loss=best)

    def decide(report: Report) -> Decision:
        return Decision.STOP if (report.number, report.epoch) in ((1, 2), (0, 3)) else Decision.CONTINUE

    together = run(train, [{"x": value} for value in VALUES], decide)
    assert together.outcome is Outcome.DONE, together.reason
    for number in (2, 3):
        alone = run_alone(train, {"x": VALUES[number]})
        assert together.notes.history(number) == pytest.approx(alone.history(0), rel=1e-9)


def test_what_lanes_have_chosen_trains_on() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(2, 1))
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["x"])
        best, best_loss = copy.deepcopy(model.state_dict()), float("inf")
        inputs = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
        for _ in trial.epochs(6):
            optimizer.zero_grad()
            loss: Tensor = (model(inputs) - 1).square().mean()
            loss.backward()
            optimizer.step()
            if loss.item() < best_loss:
                best_loss = loss.item()
                best = copy.deepcopy(model.state_dict())
            trial.report(loss=best_loss)
        model.load_state_dict(best)
        trial.report(loss=(model(inputs) - 1).square().mean())

    rates = (0.05, 0.3, 0.21, 0.5)
    together = run(train, [{"x": rate} for rate in rates])
    assert together.outcome is Outcome.DONE, together.reason
    for number, rate in enumerate(rates):
        alone = run_alone(train, {"x": rate})
        assert together.notes.history(number) == pytest.approx(alone.history(0), rel=1e-5)
