"""An `if` that lanes answer differently: what only assigns is chosen for each lane, anything else makes them part."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.train.branch_acts import APART, HOME, LIMIT, TOGETHER, append
from tests.train.lab import run, run_alone
from torch import Tensor, nn

from headwater.train import Trial
from headwater.trials import Outcome

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
    assert capsys.readouterr().out == "better: [0.6 0.8]\n"


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
