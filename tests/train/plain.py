"""What a training function gives without Headwater: the same code on a trial that does nothing of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from tests.train.lab import SEED, Run, run, run_alone
from torch import nn

from headwater.train import Trial
from headwater.train.seeding import mix_seed
from headwater.trials import Outcome


class PlainTrial:
    """Hands everything to PyTorch as it is."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.losses: list[float] = []

    def prepare_model(self, model: nn.Module) -> nn.Module:
        return model

    def prepare_optimizer(self, kind: Any, params: Any, **options: Any) -> Any:
        return kind(params.parameters() if isinstance(params, nn.Module) else params, **options)

    def epochs(self, count: int) -> Any:
        for epoch in range(count):
            torch.manual_seed(mix_seed(SEED, "epoch", epoch))
            yield epoch

    def report(self, loss: Any) -> None:
        self.losses.append(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))


def train_plainly(function: Callable[[Any], Any], config: Mapping[str, Any]) -> list[float]:
    """Return the losses that the function reports in plain PyTorch."""
    trial = PlainTrial(config)
    torch.manual_seed(SEED)
    function(trial)
    return trial.losses


def require_as_plain(
    function: Callable[[Trial], Any], configs: Sequence[Mapping[str, Any]], reset: Callable[[], Any] = lambda: None
) -> Run:
    """Fail unless one lane gives exactly what plain PyTorch gives, and several lanes the same up to rounding.

    `reset` makes anew what the function finds outside itself; it is called before each plain run, never between ours.
    """
    expected = []
    for config in configs:
        reset()
        expected.append(train_plainly(function, config))
    reset()
    for config, losses in zip(configs, expected, strict=True):
        assert run_alone(function, config).history(0) == losses
    done = run(function, configs)
    assert done.outcome is Outcome.DONE, f"{done.outcome} {done.reason} {done.ending.error}"
    for number, losses in enumerate(expected):
        assert done.notes.history(number) == pytest.approx(losses, rel=1e-9, abs=1e-9)
    for config, losses in zip(configs, expected, strict=True):
        assert run_alone(function, config).history(0) == losses
    return done
