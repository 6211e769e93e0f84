"""What the user's code has kept from before lanes left goes on working for the lanes that are left."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.train.lab import run_alone, run_done
from torch import Tensor, nn

from headwater.train import Trial
from headwater.trials import Decision, Report

CONFIGS = [{"lr": 0.1 * (number + 1), "scale": 1.0 + number} for number in range(4)]
X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)


def leave_in_turn(report: Report) -> Decision:
    """Lane 2 leaves after the first report, lane 0 after the second."""
    return Decision.STOP if (report.number, report.epoch) in ((2, 1), (0, 2)) else Decision.CONTINUE


def keep_counters(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    totals: dict[str, Any] = {"loss": 0.0, "best": None}
    scale = trial.config["scale"]

    def use(loss: Tensor) -> Any:
        totals["loss"] += loss.item() * scale
        return totals["loss"] + scale

    return use


def keep_tensors(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    average = torch.zeros((), dtype=torch.float64)
    first = [parameter.detach().clone() for parameter in model.parameters()]

    def use(loss: Tensor) -> Any:
        average.mul_(0.9).add_(loss.detach(), alpha=0.1)
        return average + sum(
            (parameter - start).abs().sum() for parameter, start in zip(model.parameters(), first, strict=True)
        )

    return use


def keep_tensors_in_containers(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    losses: list[Tensor] = []
    memory: dict[str, Tensor] = {}

    def use(loss: Tensor) -> Any:
        losses.append(loss.detach())
        memory["best"] = torch.minimum(loss.detach(), memory.get("best", loss.detach()))
        return torch.stack(losses).mean() + memory["best"]

    return use


def keep_parameters(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    parameters = list(model.parameters())

    def use(loss: Tensor) -> Any:
        return nn.utils.clip_grad_norm_(parameters, 0.05) + sum(parameter.square().sum() for parameter in parameters)

    return use


def keep_a_layer(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    weight = layer.weight

    def use(loss: Tensor) -> Any:
        return layer(X).sum() + weight.sum() + (weight is layer.weight)

    return use


def keep_a_copy(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    teacher = copy.deepcopy(model)

    def use(loss: Tensor) -> Any:
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.5)
        return teacher(X).sum()

    return use


def keep_state_dicts(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    kept: list[Any] = []

    def use(loss: Tensor) -> Any:
        kept.append(copy.deepcopy(model.state_dict()))
        if len(kept) == 3:
            model.load_state_dict(kept[0])
        return loss

    return use


def keep_a_hook(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    seen: list[Tensor] = []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().sum()))

    def use(loss: Tensor) -> Any:
        return seen[-1] + seen[0]

    return use


def keep_learning_rates(trial: Trial, model: nn.Module, optimizer: Any) -> Callable[[Tensor], Any]:
    rates = [group["lr"] for group in optimizer.param_groups]

    def use(loss: Tensor) -> Any:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * 0.5
        return optimizer.param_groups[0]["lr"]

    return use


@pytest.mark.parametrize(
    "keep",
    [
        keep_counters, keep_tensors, keep_tensors_in_containers, keep_parameters, keep_a_layer, keep_a_copy,
        keep_state_dicts, keep_a_hook, keep_learning_rates,
    ],
)  # fmt: skip
def test_lanes_that_stay_compute_as_alone_with_what_was_kept(
    keep: Callable[[Trial, nn.Module, Any], Callable[[Tensor], Any]],
) -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"], momentum=0.9)
        use = keep(trial, model, optimizer)
        for _ in trial.epochs(4):
            optimizer.zero_grad()
            loss = model(X).square().sum()
            loss.backward()
            kept = use(loss)
            optimizer.step()
            trial.report(loss=loss, kept=kept)

    group = run_done(train, CONFIGS, decide=leave_in_turn)
    for number in (1, 3):
        alone = run_alone(train, CONFIGS[number])
        assert group.history(number, "kept") == pytest.approx(alone.history(0, "kept"), rel=1e-12)
        assert group.history(number) == pytest.approx(alone.history(0), rel=1e-12)


def test_gradients_that_were_there_when_lanes_left_are_still_used() -> None:
    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(3, 2).double())
        optimizer = trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"])
        for _ in trial.epochs(3):
            (model(X).square().sum() * trial.config["scale"]).backward()  # grows on, for nothing sets it to zero
            trial.report(loss=1.0)
            optimizer.step()
        trial.report(loss=model(X).sum())

    group = run_done(train, CONFIGS, decide=leave_in_turn)
    for number in (1, 3):
        assert group.history(number) == pytest.approx(run_alone(train, CONFIGS[number]).history(0), rel=1e-12)


def test_a_model_prepared_after_lanes_left_has_as_many_lanes_as_are_left() -> None:
    def train(trial: Trial) -> None:
        trial.report(loss=0.0)
        trial.report(loss=0.0)
        model = trial.prepare_model(lambda: nn.Linear(3, 2).double())
        optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in range(2):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            optimizer.step()
        trial.report(loss=model(X).sum())

    group = run_done(train, CONFIGS, decide=leave_in_turn)
    for number in (1, 3):
        alone = run_alone(train, CONFIGS[number], number)
        assert group.history(number) == pytest.approx(alone.history(number), rel=1e-12)
