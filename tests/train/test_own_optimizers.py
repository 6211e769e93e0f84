"""Optimizers of the user's own: lanes train as each alone would, or separately."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.train.lab import run, run_alone
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

DICE = torch.Generator().manual_seed(0)
X = torch.randn(8, 4, generator=DICE, dtype=torch.float64)
Y = torch.randn(8, 1, generator=DICE, dtype=torch.float64)
RATES = (0.1, 0.05, 0.02)
DECAY = 0.5


class Rated(Optimizer):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})


class Lion(Optimizer):
    def __init__(self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.0):
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        defaults = {"lr": lr, "betas": betas, "decay": decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["decay"])
                grad = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg = state["exp_avg"]
                beta1, beta2 = group["betas"]
                update = exp_avg * beta1 + grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
        return loss


def trust(weight: Tensor, update: Tensor) -> float:
    size = torch.norm(weight)
    return float(size / (torch.linalg.norm(update) + 1e-9)) if size > 0 else 1.0


class Lars(Rated):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group["lr"])

    def _update(self, p: Tensor, lr: float) -> None:
        update = p.grad.add(p, alpha=1e-4)  # type: ignore[union-attr]  # not None
        if p.ndim > 1:
            update.mul_(trust(p, update))
        state = self.state[p]
        if "mu" not in state:
            state["mu"] = torch.zeros_like(p)
            state["num"] = 0
        state["num"] += 1
        mu = state["mu"]
        mu.mul_(0.9).add_(update)
        p.add_(mu, alpha=-lr * math.sqrt(1 / state["num"]))


class Adamish(torch.optim.Adam):
    """A class of torch with other defaults."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr=lr, betas=(0.5, 0.9))


class Langevin(Rated):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                p.add_(torch.randn_like(p), alpha=0.1 * group["lr"])


class HiddenLangevin(Rated):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(torch.empty_like(p).normal_(), alpha=group["lr"])


class Prodigious(Optimizer):
    """The estimate of the distance lies in the group, as Prodigy and D-Adaptation keep it."""

    def __init__(self, params: Any, lr: float = 1.0, d0: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr, "d": d0, "k": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            size = sum(float(p.grad.abs().sum()) for p in group["params"])
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * group["d"])
            group["d"] = max(group["d"], 1e-2 * size)
            group["k"] += 1


class Decaying(Rated):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
        self.param_groups[0]["lr"] *= 0.9


class Counting(Rated):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.t = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / self.t)


class Scaled(Rated):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.scale = 1.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * self.scale)


class Classwide(Rated):
    num_steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        Classwide.num_steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / (1 + Classwide.num_steps % 2))


class Global(Rated):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * DECAY)


class Zeroing(Rated):
    """It keeps a part of the gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(0.5)


class Noisy(Rated):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr + 0.01 * float(torch.rand(())))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])


def train(trial: Trial, kind: type[Optimizer]) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    model = trial.prepare_model(net)
    optimizer = trial.prepare_optimizer(kind, model, lr=trial.config["lr"])
    for epoch in trial.epochs(4):
        if isinstance(optimizer, Scaled) or kind is Scaled:
            optimizer.scale = 1.0 / (epoch + 1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(X) - Y).square().mean()
            loss.backward()
            optimizer.step()
        sum_of_rates = sum(group["lr"] for group in optimizer.param_groups)
        trial.report(loss=loss.item() + sum_of_rates)


def leave(report: Report) -> Decision:
    return Decision.STOP if (report.number, report.epoch) == (1, 2) else Decision.CONTINUE


@pytest.mark.parametrize("kind", [Lion, Lars, Adamish, torch.optim.NAdam])
def test_an_optimizer_that_keeps_its_state_by_parameter_trains_lanes_as_each_alone(kind: type[Optimizer]) -> None:
    together = run(lambda trial: train(trial, kind), [{"lr": rate} for rate in RATES], leave)
    assert together.outcome is Outcome.DONE, together.reason
    for number, rate in enumerate(RATES):
        wanted = run_alone(lambda trial: train(trial, kind), {"lr": rate}).history(0)
        ours = together.notes.history(number)
        assert ours == pytest.approx(wanted[: len(ours)], rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Langevin, "randn_like"),
        (HiddenLangevin, "empty_like"),
        (Prodigious, "group"),
        (Decaying, "param_groups"),
        (Counting, "attribute `t`"),
        (Scaled, "attribute `scale`"),
        (Classwide, "Classwide"),
        (Global, "DECAY"),
        (Zeroing, "zero_grad"),
        (Noisy, "torch.rand"),
    ],
)
def test_lanes_train_separately_with_an_optimizer_that_is_not_known_to_be_plain(
    kind: type[Optimizer], words: str
) -> None:
    together = run(lambda trial: train(trial, kind), [{"lr": rate} for rate in RATES])
    assert together.outcome is Outcome.APART
    assert words in together.reason


def test_an_optimizer_whose_refusal_is_caught_still_trains_lanes_separately() -> None:
    def train_on(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 1).double())
        try:
            optimizer: Any = trial.prepare_optimizer(Counting, model, lr=trial.config["lr"])
        except Exception:
            optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            optimizer.step()
            trial.report(loss=model.weight.sum().item())

    assert run(train_on, [{"lr": rate} for rate in RATES]).outcome is Outcome.APART


def test_state_that_the_code_asks_for_and_catches_makes_lanes_train_separately() -> None:
    def train_on(trial: Trial) -> None:
        model = trial.prepare_model(nn.Linear(4, 1).double())
        optimizer = trial.prepare_optimizer(torch.optim.Adam, model, lr=trial.config["lr"])
        for _ in trial.epochs(2):
            model(X).sum().backward()
            optimizer.step()
            try:
                size = len(optimizer.state)
            except Exception:
                size = -1
            trial.report(loss=size)

    assert run(train_on, [{"lr": rate} for rate in RATES]).outcome is Outcome.APART
