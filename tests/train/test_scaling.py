"""Training functions that know nothing of widths, run at several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.train.lab import Notebook
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from headwater.errors import CannotScaleError, WidthsWanted
from headwater.train import Trial
from headwater.train.keeping import rebuild_models
from headwater.train.running import TrainingSetup, run_group
from headwater.train.scaling import Scaling
from headwater.trials import Ending, Lane, Outcome, Surrogate, TrialGroup

torch.manual_seed(0)
INPUTS = torch.randn(64, 6, dtype=torch.float64)
TARGETS = (INPUTS @ torch.randn(6, 3, dtype=torch.float64)).argmax(1)
DATA = TensorDataset(INPUTS, TARGETS)
CONFIGS = [{"lr": 10.0**-n, "decay": 0.1 * n, "dropout": 0.1 + 0.1 * n} for n in range(1, 4)]
WIDTH = 64


class Tied(nn.Module):
    """A small language model whose readout shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.middle(self.embedding(x)).relu())
        return answer


def make_net(dropout: Any = 0.0) -> nn.Module:
    layers = nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3)).double()


def train(trial: Trial) -> None:
    model = trial.prepare_model(make_net(trial.config["dropout"]))
    loader = trial.prepare_data_loader(DATA, batch_size=16, shuffle=True)
    optimizer = trial.prepare_optimizer(
        torch.optim.AdamW, model, lr=trial.config["lr"], weight_decay=trial.config["decay"]
    )
    scheduler = trial.prepare_scheduler("OneCycleLR", optimizer, max_lr=trial.config["lr"], total_steps=8)
    for _ in trial.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
        trial.report(loss=loss.detach())


def train_tied(trial: Trial) -> None:
    model = trial.prepare_model(Tied)
    optimizer = trial.prepare_optimizer("SGD", model, lr=0.1)
    tokens = torch.arange(20) % 5
    for _ in trial.epochs(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), tokens.roll(1))
        loss.backward()
        optimizer.step()
        trial.report(loss=loss.detach())


def run(
    function: Callable[[Trial], None], scale: int, *, lanes: int = 1, base: int = 4
) -> tuple[Ending, Notebook, list[Lane]]:
    members = [Lane(number=n, config=CONFIGS[n], seed=3) for n in range(lanes)]
    notes = Notebook()
    setup = TrainingSetup(function, scaling=Scaling(Surrogate(scale=base, min_width=4), scale))
    return run_group(setup, TrialGroup(lanes=tuple(members)), notes), notes, members


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_a_model_is_trained_at_the_width_of_the_run(scale: int) -> None:
    _, notes, _ = run(train, scale)
    assert notes.states[0].models[0]["2.weight"].shape == (WIDTH // scale, WIDTH // scale)
    assert notes.states[0].models[0]["0.weight"].shape == (WIDTH // scale, 6)
    assert notes.states[0].models[0]["5.weight"].shape == (3, WIDTH // scale)


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_lanes_equal_single_trials_at_every_width(scale: int) -> None:
    ending, together, members = run(train, scale, lanes=3)
    assert ending.outcome is Outcome.DONE
    for lane in members:
        alone = Notebook()
        setup = TrainingSetup(train, scaling=Scaling(Surrogate(scale=4, min_width=4), scale))
        run_group(setup, TrialGroup(lanes=(lane,)), alone)
        assert together.history(lane.number) == pytest.approx(alone.history(lane.number), rel=1e-9)


def rates(notes: Notebook) -> set[float]:
    return {round(group["max_lr"] / CONFIGS[0]["lr"], 6) for group in notes.states[0].optimizers[0]["param_groups"]}


@pytest.mark.parametrize("scale", [2, 4])
def test_the_rates_of_a_surrogate_count_from_the_target(scale: int) -> None:
    assert rates(run(train, scale)[1]) == {1.0, float(scale)}  # hidden matrices and readouts under Adam: 1/m_in


def test_decay_keeps_its_shrinking_per_step() -> None:
    groups = run(train, 4)[1].states[0].optimizers[0]["param_groups"]
    products = {round(group["max_lr"] * group["weight_decay"], 9) for group in groups}
    assert products == {round(CONFIGS[0]["lr"] * CONFIGS[0]["decay"], 9)}


@pytest.mark.parametrize("function", [train, train_tied])
def test_a_target_trains_as_without_a_surrogate(function: Callable[[Trial], None]) -> None:
    _, target, (lane,) = run(function, 1)
    plain = Notebook()
    run_group(TrainingSetup(function), TrialGroup(lanes=(lane,)), plain)
    assert target.history(0) == plain.history(0)
    for name, tensor in plain.states[0].models[0].items():
        assert torch.equal(tensor, target.states[0].models[0][name])
    groups = [len(notes.states[0].optimizers[0]["param_groups"]) for notes in (target, plain)]
    assert groups == [1, 1]


@pytest.mark.parametrize(("function", "inputs"), [(train, INPUTS), (train_tied, torch.arange(5))])
def test_the_weights_of_a_target_are_those_of_a_plain_model(function: Callable[[Trial], None], inputs: Tensor) -> None:
    _, notes, (lane,) = run(function, 1)
    (model,) = rebuild_models(function, lane, notes.states[0])
    assert not any(module._forward_pre_hooks for module in model.modules())
    plain = make_net() if function is train else Tied()
    plain.load_state_dict(notes.states[0].models[0])
    assert torch.equal(model(inputs), plain.eval()(inputs))
    assert function is train or model.get_parameter("head.weight") is model.get_parameter("embedding.weight")


def test_a_model_that_is_never_called_is_refused() -> None:
    def never(trial: Trial) -> None:
        trial.prepare_model(make_net())
        trial.report(loss=0.0)

    with pytest.raises(CannotScaleError, match="does not call it"):
        run(never, 4)


def test_a_function_that_raises_before_it_calls_its_model_fails_its_trial() -> None:
    def fail(trial: Trial) -> None:
        trial.prepare_model(make_net())
        raise ValueError("no data")

    ending, _, _ = run(fail, 4)
    assert ending.outcome is Outcome.RAISED
    assert "no data" in ending.error


def test_two_models_in_one_function_are_both_resized() -> None:
    def train_two(trial: Trial) -> None:
        first, second = trial.prepare_model(make_net()), trial.prepare_model(Tied())
        optimizer = trial.prepare_optimizer("SGD", [*first.parameters(), *second.parameters()], lr=0.1)
        for _ in trial.epochs(1):
            loss = first(INPUTS).square().mean() + second(torch.arange(5)).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.detach())

    ending, notes, _ = run(train_two, 4)
    assert ending.outcome is Outcome.DONE, ending.error
    assert notes.states[0].models[0]["2.weight"].shape == (WIDTH // 4, WIDTH // 4)
    assert notes.states[0].models[1]["middle.weight"].shape == (WIDTH // 4, WIDTH // 4)


@pytest.mark.parametrize("scale", [2, 4])
def test_a_surrogate_starts_from_blocks_of_the_targets_weights(scale: int) -> None:
    scaling = Scaling(Surrogate(scale=4, min_width=4), scale)
    seen, model = make_net(), make_net()
    scaling.watch(seen)
    with pytest.raises(WidthsWanted):
        seen(INPUTS)
    started = scaling.fit(model).model
    factors = {"2.weight": scale**0.5, "5.weight": scale**0.5}  # those that sum over a width
    for name, drawn in model.named_parameters():
        own = started.get_parameter(name)
        block = drawn[tuple(slice(size) for size in own.shape)]
        torch.testing.assert_close(own, block * factors.get(name, 1.0))
