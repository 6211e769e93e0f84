"""Random numbers that are drawn with what is tuned: each lane gets those of its trial alone, or lanes train apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from sklearn.utils import resample
from tests.train.lab import run, run_alone
from torch import nn
from torch.distributions import Beta, Dirichlet, Gamma, Poisson
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

VALUES = (0.2, 1.9, 0.5, 2.3)
"""Above 1, another number of random numbers is drawn."""
CONFIGS = [{"x": value} for value in VALUES]
DATA = TensorDataset(torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))


def train_on(draw: Callable[[Any], Any]) -> Callable[[Trial], None]:
    """Return a function that trains with what is drawn, and with further random numbers of every stream."""

    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 2)).double())
        optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
        loader = trial.prepare_data_loader(DATA, batch_size=4, shuffle=True)
        trial.note(start=draw(trial.config["x"]))
        for _ in trial.epochs(2):
            for (rows,) in loader:
                drawn = draw(trial.config["x"])
                other = rows[torch.randperm(len(rows))]
                mixed = drawn * rows + (1 - drawn) * other + torch.empty(rows.shape).normal_() * 0.1
                loss = (model(mixed) ** 2).mean() * (1 + np.random.rand()) * (1 + random.random())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            trial.report(loss=loss * torch.rand(1).item())

    return train


def numpy_beta(x: Any) -> Any:
    return np.random.beta(x, x) if x > 0 else 1


def numpy_normal_after_beta(x: Any) -> Any:
    return np.random.beta(x, x) + np.random.normal(0, x) * 0.1 + float(np.random.permutation(5)[0])


def python_beta(x: Any) -> Any:
    return random.betavariate(x, x)


def own_generator(x: Any) -> Any:
    dice = np.random.default_rng(3)
    return dice.beta(x, x) + dice.random()


def own_state(x: Any) -> Any:
    dice = np.random.RandomState(3)
    first = dice.gamma(x)
    return first + dice.normal()


def own_python_dice(x: Any) -> Any:
    dice = random.Random(3)
    return dice.gammavariate(x, 1.0) + dice.random()


def seeded_again(x: Any) -> Any:
    first = np.random.beta(x, x)
    np.random.seed(4)
    return first + np.random.rand()


def scipy_beta(x: Any) -> Any:
    return scipy.stats.beta.rvs(x, x) + np.random.rand()


def torch_beta(x: Any) -> Any:
    return Beta(x, x).sample()


def torch_gamma(x: Any) -> Any:
    return Gamma(x, 1.0).sample() + F.dropout(torch.ones(3), 0.5).sum()


def torch_poisson(x: Any) -> Any:
    return Poisson(x * 9).sample() + torch.randint(5, (1,)).item() * 0.1


def torch_dirichlet(x: Any) -> Any:
    return Dirichlet(torch.ones(3) * x).sample()[0] + torch.bernoulli(torch.full((2,), 0.5)).sum()


TOGETHER = [
    numpy_beta, numpy_normal_after_beta, python_beta, own_generator, own_state, own_python_dice, seeded_again,
    scipy_beta, torch_beta, torch_gamma, torch_poisson, torch_dirichlet,
]  # fmt: skip


@pytest.mark.parametrize("draw", TOGETHER)
def test_each_lane_draws_what_its_trial_alone_would(draw: Callable[[Any], Any]) -> None:
    train = train_on(draw)
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.DONE, f"{together.reason} {together.ending.error}"
    for number, config in enumerate(CONFIGS):
        alone = run_alone(train, config)
        assert together.notes.history(number) == pytest.approx(alone.history(0), rel=1e-9)
        assert together.notes.reports[number].attributes["start"] == alone.reports[0].attributes["start"]


def test_lanes_that_leave_take_their_place_in_the_stream_along() -> None:
    def train(trial: Trial) -> None:
        for _ in range(4):
            trial.report(loss=np.random.beta(trial.config["x"], 0.5) + Beta(trial.config["x"], 0.5).sample().item())

    def decide(report: Report) -> Decision:
        return Decision.STOP if (report.number, report.epoch) in ((1, 1), (0, 3)) else Decision.CONTINUE

    together = run(train, CONFIGS, decide)
    for number in (2, 3):
        assert together.notes.history(number) == run_alone(train, CONFIGS[number]).history(0)


def draw_out_of_sight(x: Any) -> Any:
    np.random.beta(x, x)
    return float(resample([1.0, 2.0, 3.0, 4.0, 5.0])[0])


def read_the_state(x: Any) -> Any:
    np.random.beta(x, x)
    return float(np.random.get_state()[2])  # type: ignore[index]  # a tuple


def shuffle_a_list(x: Any) -> Any:
    np.random.beta(x, x)
    numbers = [1.0, 2.0, 3.0]
    np.random.shuffle(numbers)
    return numbers[0]


def seed_torch(x: Any) -> Any:
    Beta(x, x).sample()
    torch.manual_seed(3)
    return torch.rand(1).item()


def restore_torch(x: Any) -> Any:
    before = torch.get_rng_state()
    Beta(x, x).sample()
    torch.set_rng_state(before)
    return torch.rand(1).item()


def drop_in_place(x: Any) -> Any:
    Beta(x, x).sample()
    return F.dropout(torch.ones(8), 0.5, inplace=True).sum()


def draw_in_a_checkpoint(x: Any) -> Any:
    drawn = Beta(x, x).sample()
    weight = (drawn + torch.ones(4)).requires_grad_()
    return checkpoint(lambda it: F.dropout(it, 0.5), weight, use_reentrant=False).sum().detach()


def draw_for_some_lanes(x: Any) -> Any:
    drawn = Beta(x, x).sample().item()
    extra = 0.0
    if drawn > 0.5:
        extra = torch.rand(1).item()
    return drawn + extra


APART = [
    draw_out_of_sight, read_the_state, shuffle_a_list, seed_torch, restore_torch, drop_in_place, draw_in_a_checkpoint,
    draw_for_some_lanes,
]  # fmt: skip


@pytest.mark.parametrize("draw", APART)
def test_draws_that_cannot_be_followed_send_lanes_apart(draw: Callable[[Any], Any]) -> None:
    together = run(train_on(draw), CONFIGS)
    assert together.outcome in (Outcome.APART, Outcome.PARTED), together.ending.error


def test_a_model_is_built_from_the_seed_of_its_trial_alone_after_lanes_have_drawn() -> None:
    def train(trial: Trial) -> None:
        np.random.beta(trial.config["x"], 0.5)
        Beta(trial.config["x"], 0.5).sample()
        model = trial.prepare_model(lambda: nn.Linear(2, 1))
        trial.report(loss=model.weight.sum() + np.random.rand())

    together = run(train, CONFIGS)
    for number, config in enumerate(CONFIGS):
        assert together.notes.history(number) == run_alone(train, config, number).history(number)
