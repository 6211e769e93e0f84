"""Random numbers: lanes share the streams, so they part by a value that differs where it decides about draws."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from tests.train.lab import run, run_alone
from torch import nn
from torch.distributions import Beta, Dirichlet, Gamma, Normal, Poisson
from torch.utils.data import TensorDataset

import headwater as hw
from headwater.report import Silence
from headwater.train import Trial
from headwater.trials import Outcome

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


def seeded_by_the_value(x: Any) -> Any:
    np.random.seed(int(x * 10))
    return np.random.rand()


def shuffled_values(x: Any) -> Any:
    numbers = [x, 1.0, 2.0]
    random.shuffle(numbers)
    return numbers[0]


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


BY_VALUE = [
    numpy_beta, numpy_normal_after_beta, python_beta, own_generator, own_state, own_python_dice, seeded_again,
    seeded_by_the_value, scipy_beta,
]  # fmt: skip


@pytest.mark.parametrize("draw", BY_VALUE)
def test_a_draw_with_a_value_that_differs_makes_lanes_part_by_it(draw: Callable[[Any], Any]) -> None:
    together = run(train_on(draw), CONFIGS)
    assert together.outcome is Outcome.PARTED, together.ending.error
    assert together.label is not None
    assert re.search(r"\bx\b", together.label)
    assert re.search(r"test_draws\.py:\d+", together.reason)


BY_REJECTION = [torch_beta, torch_gamma, torch_poisson, torch_dirichlet]


@pytest.mark.parametrize("draw", BY_REJECTION)
def test_a_sampler_that_draws_as_often_as_it_takes_sends_lanes_apart(draw: Callable[[Any], Any]) -> None:
    assert run(train_on(draw), CONFIGS).outcome is Outcome.APART


def plain_draws(x: Any) -> Any:
    return np.random.beta(2.0, 2.0) + random.gauss(0, 1) + float(np.random.permutation(5)[0])


def torch_noise(x: Any) -> Any:
    return torch.normal(torch.zeros(1), torch.ones(1) * x).item() + Normal(0.0, x).sample() + torch.rand(1).item()


@pytest.mark.parametrize("draw", [plain_draws, shuffled_values, torch_noise])
def test_each_lane_draws_what_its_trial_alone_would(draw: Callable[[Any], Any]) -> None:
    train = train_on(draw)
    together = run(train, CONFIGS)
    assert together.outcome is Outcome.DONE, f"{together.reason} {together.ending.error}"
    for number, config in enumerate(CONFIGS):
        alone = run_alone(train, config)
        assert together.notes.history(number) == pytest.approx(alone.history(0), rel=1e-9)
        assert together.notes.reports[number].attributes["start"] == alone.reports[0].attributes["start"]


def test_a_study_of_mixup_gives_what_one_by_one_gives() -> None:
    runs = []
    for lanes in (1, 4):
        study = hw.Study(
            train_on(numpy_beta), space={"x": hw.choice([*VALUES])}, metric="loss", mode="min", lanes=lanes,
            storage=None, executor="inline",
        )  # fmt: skip
        runs.append([trial.metrics for trial in study.run(num_trials=4, watcher=Silence()).trials])
    alone, together = runs
    assert together == [pytest.approx(metrics, rel=1e-9) for metrics in alone]
