"""Looking at a model at work: what its structure is, and that looking comes to an end."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.train.lab import Notebook
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import headwater as hw
from headwater.errors import CannotScaleError
from headwater.train.running import TrainingSetup, run_group
from headwater.train.scaling import Scaling
from headwater.trials import Ending, Lane, Outcome, Surrogate, TrialGroup

INPUTS = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))


def make_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def train_with(*builds: Callable[[], nn.Module], num_called: int = 1) -> Callable[[hw.Trial], None]:
    """Return a function that prepares these models and calls the last of them."""

    def train(trial: hw.Trial) -> None:
        models = [trial.prepare_model(build()) for build in builds]
        optimizer = trial.prepare_optimizer("SGD", [p for model in models for p in model.parameters()], lr=0.1)
        for _ in trial.epochs(2):
            optimizer.zero_grad()
            loss = sum((model(INPUTS).square().mean() for model in models[-num_called:]), start=torch.zeros(()))
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.detach())

    return train


def run(function: Callable[[hw.Trial], None]) -> tuple[Ending, Notebook]:
    notes = Notebook()
    setup = TrainingSetup(function, scaling=Scaling(Surrogate(scale=4, min_width=4), 4))
    lane = Lane(number=0, config={}, seed=0)
    return run_group(setup, TrialGroup(lanes=(lane,)), notes), notes


def test_a_class_that_is_defined_inside_the_function_is_made_narrower() -> None:
    def build() -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = nn.Linear(6, 32), nn.Linear(32, 3)

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = self.last(F.relu(self.first(x)))
                return out

        return Net()

    ending, notes = run(train_with(build))
    assert ending.outcome is Outcome.DONE, ending.error
    assert notes.states[0].models[0]["first.weight"].shape == (8, 6)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize(
    "reparametrize", [parametrizations.weight_norm, parametrizations.spectral_norm, weight_norm, spectral_norm]
)
def test_reparametrized_weights_are_refused_in_one_line(reparametrize: Callable[[nn.Module], nn.Module]) -> None:
    def build() -> nn.Module:
        model = make_net()
        reparametrize(model[2])
        return model

    with pytest.raises(CannotScaleError, match=r"reparametrized weight.*plain layer"):
        run(train_with(build))


class Numbered(nn.Module):
    """Differs in a number each time it is built."""

    count = itertools.count(5)

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()
        self.number = next(self.count)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


def test_a_model_that_is_built_differently_each_time_is_refused() -> None:
    with pytest.raises(CannotScaleError, match=r"builds its Numbered differently.*number was \d+, then \d+"):
        run(train_with(Numbered))


def test_looking_ends_though_one_model_is_never_called_and_the_other_changes() -> None:
    with pytest.raises(CannotScaleError, match="differently each time"):
        run(train_with(make_net, Numbered))


def test_models_may_be_called_in_another_order_than_they_are_prepared() -> None:
    def build_wide() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 3))

    def train(trial: hw.Trial) -> None:
        first, second = trial.prepare_model(make_net()), trial.prepare_model(build_wide())
        for _ in trial.epochs(1):
            trial.report(loss=(second(INPUTS) + first(INPUTS)).square().mean().detach())

    ending, notes = run(train)
    assert ending.outcome is Outcome.DONE, ending.error
    assert [len(model["0.weight"]) for model in notes.states[0].models] == [8, 16]


def test_a_trial_that_has_trained_all_its_epochs_comes_to_its_end_in_a_worker_that_has_never_seen_its_model() -> None:
    setup = TrainingSetup(train_with(make_net), scaling=Scaling(Surrogate(scale=4, min_width=4), 4))
    lane = Lane(number=0, config={}, seed=0, start_epoch=2)
    ending = run_group(setup, TrialGroup(lanes=(lane,)), Notebook())
    assert ending.outcome is Outcome.DONE, ending.error
