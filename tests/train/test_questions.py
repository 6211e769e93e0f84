"""A value never lies: what a training function asks of Python, each trial of a group answers as it would alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.train.lab import run
from tests.train.questions import ABOUT_CONFIGURATIONS, ABOUT_NUMBERS, ABOUT_SIZES, ABOUT_THINGS, RATES, SIZES, WORDS
from torch import nn

import headwater as hw
from headwater.train import Trial
from headwater.trials import Outcome

TOGETHER = [
    "isinstance", "isinstance-of-text", "type", "type-in", "class", "match", "callable", "is-none", "is-true",
    "is-not-false", "sorted", "bool", "copy", "numpy-mean", "numpy-number", "round", "divmod", "max-of-a-generator",
    "min-with-a-key", "sum", "statistics", "signed-zero", "item", "partial", "log-and-go-on", "getattr",
]  # fmt: skip
"""What is answered for all lanes at once."""


def train_on(ask: Callable[[Any], Any], read: Callable[[Trial], Any]) -> Callable[[Trial], None]:
    """Return a training function that reports what a question comes to."""

    def train(trial: Trial) -> None:
        trial.report(answer=ask(read(trial)), other=1.0)

    return train


def read_value(trial: Trial) -> Any:
    return trial.config["x"]


def read_computed(trial: Trial) -> Any:
    """Return the value of the configuration again, but out of a tensor that the lanes have computed."""
    model = trial.prepare_model(nn.Linear(1, 1, bias=False).double())
    with torch.no_grad():
        return (model.weight.fill_(1.0) * trial.config["x"]).sum().item()


def answers(train: Callable[[Trial], None], values: list[Any], lanes: int) -> list[Any]:
    return answers_to(train, {"x": hw.grid(values)}, lanes, len(values))


def answers_to(train: Callable[[Trial], None], space: Mapping[str, Any], lanes: int, num_trials: int) -> list[Any]:
    study = hw.Study(train, space=space, metric="answer", search="grid", storage=None, lanes=lanes)
    trials = study.run(num_trials=num_trials, watcher=hw.Silence()).trials
    return [(trial.config, trial.status, trial.metrics.get("answer")) for trial in trials]


@pytest.mark.parametrize("name", ABOUT_NUMBERS)
@pytest.mark.parametrize("read", [read_value, read_computed])
def test_numbers_answer_for_each_trial(name: str, read: Callable[[Trial], Any]) -> None:
    train = train_on(ABOUT_NUMBERS[name], read)
    assert answers(train, RATES, 4) == answers(train, RATES, 1)


@pytest.mark.parametrize("name", ABOUT_SIZES)
def test_whole_numbers_answer_for_each_trial(name: str) -> None:
    train = train_on(ABOUT_SIZES[name], read_value)
    assert answers(train, SIZES, 4) == answers(train, SIZES, 1)


@pytest.mark.parametrize("name", ABOUT_THINGS)
def test_whatever_a_choice_is_of_answers_for_each_trial(name: str) -> None:
    values, ask = ABOUT_THINGS[name]
    train = train_on(ask, read_value)
    assert answers(train, values, len(values)) == answers(train, values, 1)


@pytest.mark.parametrize("name", ABOUT_CONFIGURATIONS)
def test_configurations_answer_for_each_trial(name: str) -> None:
    train = train_on(ABOUT_CONFIGURATIONS[name], lambda trial: trial.config)
    space = {"rate": hw.grid([0.1, 0.2]), "word": hw.grid(WORDS[:2]), "maybe": hw.grid([None, 2])}
    assert answers_to(train, space, 8, 8) == answers_to(train, space, 1, 8)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_computes_or_shows_keeps_lanes_together(name: str) -> None:
    done = run(train_on(ABOUT_NUMBERS[name], read_value), [{"x": rate} for rate in RATES])
    assert done.outcome is Outcome.DONE, done.reason
