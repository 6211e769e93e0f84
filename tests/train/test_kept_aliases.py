"""Tensors that share memory go on sharing it when lanes leave, at whichever report that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.train.lab import run, run_alone
from torch import Tensor, nn

from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

DICE = torch.Generator().manual_seed(0)
X = torch.randn(8, 4, generator=DICE, dtype=torch.float64)
Y = torch.randn(8, 1, generator=DICE, dtype=torch.float64)
RATES = (0.1, 0.15, 0.2, 0.02, 0.07)
LAST_EPOCH = {1: 1, 0: 3, 4: 3}
"""Who leaves when; the others go on."""

Keep = Callable[[nn.Sequential], Any]
Act = Callable[[Any, nn.Sequential, Tensor], None]


def leave(report: Report) -> Decision:
    return Decision.STOP if LAST_EPOCH.get(report.number) == report.epoch else Decision.CONTINUE


def nothing(kept: Any, model: nn.Sequential, loss: Tensor) -> None:
    pass


def weigh(model: nn.Sequential) -> Tensor:
    weight: Tensor = model[0].weight  # type: ignore[assignment]  # a Linear's
    return weight


def copy_weight(model: nn.Sequential) -> Tensor:
    return weigh(model).detach() * 1.0


def view_plain(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = torch.zeros(3, dtype=torch.float64)
    return kept, kept.view(3, 1)


def row_of_lanes(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = copy_weight(model)
    return kept, kept[1]


def transposed(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = copy_weight(model)
    return kept, kept.t()[2]


def pieces(model: nn.Sequential) -> tuple[Tensor, ...]:
    kept = copy_weight(model)
    return kept, kept.unbind(0)[0], *kept.split(2, dim=1)


def spread(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = copy_weight(model)
    return kept, kept[0].expand(5, 4)


def diagonal(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = copy_weight(model)
    return kept, kept.diagonal()


def as_complex(model: nn.Sequential) -> tuple[Tensor, Tensor]:
    kept = copy_weight(model)
    return kept, torch.view_as_complex(kept.view(3, 2, 2)).real[0]


def add_loss(kept: Any, model: nn.Sequential, loss: Tensor) -> None:
    kept[1].add_(loss.detach())


def write_part(kept: Any, model: nn.Sequential, loss: Tensor) -> None:
    kept[1][:1] = loss.detach()


def shrink_weight(kept: Any, model: nn.Sequential, loss: Tensor) -> None:
    kept[0].mul_(0.9)


def keep_gradient(kept: list[Tensor], model: nn.Sequential, loss: Tensor) -> None:
    if not kept:
        grad = weigh(model).grad
        assert grad is not None
        kept += [grad, grad[0]]


def keep_gradient_alone(kept: list[Tensor], model: nn.Sequential, loss: Tensor) -> None:
    if not kept:
        grad = weigh(model).grad
        assert grad is not None
        kept.append(grad)


def keep_gradients(kept: list[Tensor], model: nn.Sequential, loss: Tensor) -> None:
    if not kept:
        kept.extend(param.grad for param in model.parameters() if param.grad is not None)


def pieces_of_copy(model: nn.Sequential) -> tuple[Tensor, ...]:
    kept = copy_weight(model)
    return kept, *kept.split(2, dim=1)


def add_mean(kept: Any, model: nn.Sequential, loss: Tensor) -> None:
    kept[1].add_(kept[2].mean())


KEPT: list[tuple[Keep, Act]] = [
    (view_plain, add_loss),
    (row_of_lanes, add_loss),
    (transposed, add_loss),
    (transposed, write_part),
    (pieces, add_loss),
    (spread, nothing),
    (diagonal, add_loss),
    (as_complex, add_loss),
    (lambda model: [weigh(model).detach()], nothing),
    (lambda model: [weigh(model).data], nothing),
    (lambda model: [weigh(model)[0].detach()], nothing),
    (lambda model: [weigh(model).data[1]], shrink_weight),
    (lambda model: list(model.state_dict().values()), nothing),
    (lambda model: [model[1].running_mean.view(-1)], nothing),  # type: ignore[operator]  # a BatchNorm's
    (lambda model: [], keep_gradient),
    (lambda model: [], keep_gradient_alone),
    (lambda model: [], keep_gradients),
    (pieces_of_copy, add_mean),
]


@pytest.mark.parametrize("touches", ["always", "late"])
@pytest.mark.parametrize(("keep", "act"), KEPT)
def test_what_shares_memory_shares_it_when_lanes_have_left(keep: Keep, act: Act, touches: str) -> None:
    def train(trial: Trial) -> None:
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).double()
        model = trial.prepare_model(net)
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        kept = keep(model)
        for epoch in trial.epochs(5):
            for _ in range(2):
                optimizer.zero_grad(set_to_none=False)
                loss = (model(X) - Y).square().mean()
                loss.backward()
                optimizer.step()
                if touches == "always" or epoch in (0, 4):  # twice somebody leaves without it
                    act(kept, model, loss)
            shown = sum(tensor.sum().item() for tensor in kept) if touches == "always" or epoch == 4 else 0.0
            trial.report(loss=weigh(model).sum().item() + shown)

    together = run(train, [{"lr": rate} for rate in RATES], leave)
    assert together.outcome is Outcome.DONE, together.reason
    for number, rate in enumerate(RATES):
        wanted = run_alone(train, {"lr": rate}).history(0)[: LAST_EPOCH.get(number)]
        assert together.notes.history(number) == pytest.approx(wanted, rel=1e-9)


def run_five(train: Callable[[Trial], None]) -> None:
    """Compare lanes, of which some leave, with trials alone."""
    together = run(train, [{"lr": rate} for rate in RATES], leave)
    assert together.outcome is Outcome.DONE, together.reason + together.ending.error
    for number, rate in enumerate(RATES):
        wanted = run_alone(train, {"lr": rate}).history(0)[: LAST_EPOCH.get(number)]
        assert together.notes.history(number) == pytest.approx(wanted, rel=1e-9)


def build(trial: Trial) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    model = trial.prepare_model(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double())
    return model, trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])


def cut_columns(tensor: Tensor) -> tuple[Tensor, Tensor]:
    return tensor[:, :2], tensor[:, 2:]


def cut_in_halves(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.hsplit(2)


@pytest.mark.parametrize("cut", [cut_columns, cut_in_halves])
def test_a_view_from_before_lanes_left_takes_values_with_a_gradient(cut: Callable[[Tensor], Any]) -> None:
    def train(trial: Trial) -> None:
        model, optimizer = build(trial)
        memory = model[0](X).detach().clone()
        parts = cut(memory)
        for _ in trial.epochs(5):
            optimizer.zero_grad()
            error = (model(X) - Y).square().mean()
            parts[0].add_(error)
            loss = error + 0.01 * memory.sum()
            loss.backward()
            optimizer.step()
            memory = memory.detach()
            parts = cut(memory)
            trial.report(loss=loss.item() + sum(part.sum().item() for part in parts))

    run_five(train)


def test_gradients_that_are_views_of_one_buffer_of_each_lane_share_it() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = build(trial)
        buffer = torch.cat([torch.zeros_like(param).view(-1) for param in model.parameters()])
        start = 0
        for param in model.parameters():
            param.grad = buffer[start : start + param.numel()].view_as(param)
            start += param.numel()
        for _ in trial.epochs(5):
            buffer.zero_()
            loss = (model(X) - Y).square().mean()
            loss.backward()
            buffer.clamp_(-0.1, 0.1)
            optimizer.step()
            trial.report(loss=loss.item() + buffer.norm().item())

    run_five(train)


def test_a_gradient_that_is_a_view_of_a_buffer_of_all_lanes_makes_them_train_separately() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = build(trial)
        buffer = torch.zeros(sum(param.numel() for param in model.parameters()), dtype=torch.float64)
        start = 0
        for param in model.parameters():
            param.grad = buffer[start : start + param.numel()].view_as(param)
            start += param.numel()
        for _ in trial.epochs(3):
            buffer.zero_()
            loss = (model(X) - Y).square().mean()
            loss.backward()
            optimizer.step()
            trial.report(loss=loss.item() + buffer.norm().item())

    together = run(train, [{"lr": rate} for rate in RATES])
    assert together.outcome is Outcome.APART
    assert "gradient" in together.reason


def test_weights_that_are_views_of_a_buffer_of_all_lanes_make_them_train_separately() -> None:
    def train(trial: Trial) -> None:
        model, optimizer = build(trial)
        buffer = torch.zeros(16, dtype=torch.float64)
        model[0].weight.data = buffer.view(4, 4)
        for _ in trial.epochs(3):
            (model(X) - Y).square().mean().backward()
            optimizer.step()
            trial.report(loss=buffer.sum().item())

    assert run(train, [{"lr": rate} for rate in RATES]).outcome is Outcome.APART


@pytest.mark.parametrize("is_array", [False, True])
def test_an_alias_of_a_tensor_whose_gradient_is_wanted_makes_lanes_train_apart(is_array: bool) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 1).double())
        with torch.no_grad():
            model.weight.mul_(trial.config["lr"])
        array = np.zeros(4)
        inputs = torch.from_numpy(array) if is_array else torch.zeros(4, dtype=torch.float64)
        alias = array if is_array else inputs.detach()
        inputs.requires_grad_()
        model(inputs).sum().backward()
        with torch.no_grad():
            assert inputs.grad is not None
            inputs.sub_(inputs.grad)
        trial.report(loss=float(alias.sum()))

    together = run(train, [{"lr": rate} for rate in RATES])
    assert together.outcome is Outcome.APART
    assert "whose memory other tensors share" in together.reason
