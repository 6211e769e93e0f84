"""`torch.amp.GradScaler` in lanes: one lane's overflow skips its own step and halves its own scale, nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.train.lab import run
from tests.train.plain import require_as_plain
from torch import Tensor, nn

from headwater.train import Trial
from headwater.trials import Decision, Outcome, Report

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(16, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
CONFIGS = [{"lr": 0.01 * (number + 1), "bad": number} for number in range(4)]
"""Each lane's loss is infinite at another step, the first one's at the very first."""

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], Mapping[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"initial_accumulator_value": 0.1, "lr_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "nadam": (torch.optim.NAdam, {}),
}


@pytest.fixture(autouse=True)
def _double() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def spoil(loss: Tensor, trial: Trial, step: int) -> Tensor:
    """Make the loss infinite in the lane whose turn it is."""
    distance: Tensor = torch.tensor(0.0) + abs(trial.config["bad"] - step % 4)
    factor: Tensor = distance.clamp(max=1).reciprocal()
    return loss * factor


def scaled(
    name: str, use: Callable[[torch.amp.GradScaler, nn.Module, Any, int], Any] = lambda *_: None, **settings: Any
) -> Callable[[Trial], None]:
    """Return a function that trains with a scaler; `use` sees scaler, model, optimizer and step before each step."""
    kind, options = OPTIMIZERS[name]

    def train(trial: Trial) -> None:
        model = trial.prepare_model(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
        optimizer = trial.prepare_optimizer(kind, model, lr=trial.config["lr"], **options)
        scaler = torch.amp.GradScaler("cpu", **{"growth_interval": 2, **settings})
        for epoch in trial.epochs(3):
            for step in range(4 * epoch, 4 * epoch + 4):
                optimizer.zero_grad()
                loss = (model(X) - Y).square().mean()
                scaler.scale(spoil(loss, trial, step)).backward()
                use(scaler, model, optimizer, step)
                scaler.step(optimizer)
                scaler.update()
            grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            trial.report(loss=loss + scaler.get_scale() / 2**16 + grads[0].nan_to_num(0, 0, 0).sum())

    return train


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_lane_that_overflows_skips_its_own_step(name: str) -> None:
    require_as_plain(scaled(name), CONFIGS)


def clip(scaler: torch.amp.GradScaler, model: nn.Module, optimizer: Any, step: int) -> None:
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def set_scale(scaler: torch.amp.GradScaler, model: nn.Module, optimizer: Any, step: int) -> None:
    if step == 6:
        scaler.step(optimizer)
        scaler.update(64.0)
        optimizer.zero_grad()
        scaler.scale((model(X) - Y).square().mean()).backward()


def save_and_load(scaler: torch.amp.GradScaler, model: nn.Module, optimizer: Any, step: int) -> None:
    if step == 5:
        saved = scaler.state_dict()
        scaler.load_state_dict(saved)


@pytest.mark.parametrize("use", [clip, set_scale, save_and_load])
def test_what_a_scaler_is_asked_for_is_answered_by_lane(use: Callable[..., Any]) -> None:
    require_as_plain(scaled("adamw", use), CONFIGS)


def test_scales_grow_by_lane_and_stay_finite() -> None:
    require_as_plain(scaled("sgd", init_scale=2.0**126, growth_interval=1), CONFIGS)


def test_two_optimizers_of_one_scaler_skip_by_themselves() -> None:
    def train(trial: Trial) -> None:
        models = [trial.prepare_model(nn.Linear(4, 2)) for _ in range(2)]
        optimizers = [trial.prepare_optimizer(torch.optim.AdamW, model, lr=trial.config["lr"]) for model in models]
        scaler = torch.amp.GradScaler("cpu")
        for epoch in trial.epochs(5):
            losses = [(model(X) - Y).square().mean() for model in models]
            losses[0] = spoil(losses[0], trial, epoch)
            for loss, optimizer in zip(losses, optimizers, strict=True):
                optimizer.zero_grad()
                scaler.scale(loss).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            trial.report(loss=sum(model(X).sum() for model in models) + scaler.get_scale())

    require_as_plain(train, CONFIGS)


def test_lanes_that_leave_take_their_scale_along() -> None:
    def decide(report: Report) -> Decision:
        return Decision.STOP if report.number == 1 else Decision.CONTINUE

    whole, narrowed = run(scaled("momentum"), CONFIGS), run(scaled("momentum"), CONFIGS, decide=decide)
    assert whole.outcome is narrowed.outcome is Outcome.DONE
    for number in (0, 2, 3):
        assert narrowed.notes.history(number) == pytest.approx(whole.notes.history(number), rel=1e-12)


def test_a_hook_on_steps_makes_lanes_train_apart_where_only_some_step() -> None:
    def count(scaler: torch.amp.GradScaler, model: nn.Module, optimizer: Any, step: int) -> None:
        if step == 0:
            optimizer.register_step_post_hook(lambda *_: None)

    done = run(scaled("sgd", count), CONFIGS)
    assert done.outcome is Outcome.APART
    assert "whose step is skipped" in done.reason
