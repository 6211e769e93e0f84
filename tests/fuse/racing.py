"""Lanes and separate models side by side, stepped with the same gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from headwater.fuse.hyperparameters import merge
from headwater.fuse.models import fuse_models, narrow_model
from headwater.fuse.optimizers import LaneOptimizer, fuse_optimizer
from headwater.fuse.roster import Roster
from headwater.torch_private import stack_of

Settings = dict[str, Any]

CASES: dict[str, tuple[str, Callable[[int], Settings]]] = {
    "sgd": ("SGD", lambda i: {"lr": 0.1 + 0.03 * i, "weight_decay": 0.01 * i}),
    "sgd-momentum": (
        "SGD",
        lambda i: {
            "lr": 0.1 / (i + 1),
            "momentum": 0.3 * (i % 4),
            "dampening": 0.07 * i,
            "weight_decay": 0.02 * (i % 3),
        },
    ),
    "sgd-plain-momentum": ("SGD", lambda i: {"lr": 0.1 + 0.03 * i, "momentum": 0.9}),
    "sgd-nesterov": ("SGD", lambda i: {"lr": 0.02, "momentum": 0.5 + 0.05 * i, "nesterov": i % 2 == 0}),
    "sgd-maximize": ("SGD", lambda i: {"lr": 0.1, "momentum": 0.4, "maximize": i % 3 == 0, "weight_decay": 0.1}),
    "adam": (
        "Adam",
        lambda i: {
            "lr": 0.01 * (i + 1),
            "betas": (0.9 - 0.05 * i, 0.99 - 0.03 * i),
            "eps": 10.0 ** -(8 - i % 5),
            "weight_decay": 0.05 * (i % 3),
            "amsgrad": i % 2 == 1,
        },
    ),
    "adam-plain": ("Adam", lambda i: {"lr": 0.01, "weight_decay": 0.1}),
    "adamw": (
        "AdamW",
        lambda i: {
            "lr": 0.01 * (i + 1),
            "betas": (0.9, 0.99 - 0.03 * i),
            "eps": 1e-8 * (i + 1),
            "weight_decay": 0.05 * (i % 3),
            "maximize": i == 1,
        },
    ),
    "adagrad": (
        "Adagrad",
        lambda i: {
            "lr": 0.05 * (i + 1),
            "lr_decay": 0.1 * i,
            "initial_accumulator_value": 0.2 * i,
            "eps": 10.0 ** -(10 - i),
            "weight_decay": 0.05 * (i % 3),
        },
    ),
    "rmsprop": (
        "RMSprop",
        lambda i: {
            "lr": 0.01 * (i + 1),
            "alpha": 0.99 - 0.05 * i,
            "eps": 10.0 ** -(8 - i % 5),
            "momentum": 0.3 * (i % 3),
            "centered": i % 2 == 0,
            "weight_decay": 0.05 * (i % 3),
        },
    ),
    "rmsprop-momentum": ("RMSprop", lambda i: {"lr": 0.01 * (i + 1), "momentum": 0.5 + 0.05 * i}),
    "adamax": ("Adamax", lambda i: {"lr": 0.01 * (i + 1), "weight_decay": 0.05 * i}),
}

every_case = pytest.mark.parametrize("case", CASES)


class Race:
    """Lanes and separate models that get the same gradients."""

    def __init__(self, num_lanes: int, dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(num_lanes)
        models = [nn.Sequential(nn.Linear(4, 3, dtype=dtype), nn.Linear(3, 2, dtype=dtype)) for _ in range(num_lanes)]
        self.roster = Roster([{}] * num_lanes)
        self.solos = [copy.deepcopy(model) for model in models]
        self.model = fuse_models(models)
        self.solo_optimizers: list[Optimizer] = []

    def start(self, name: str, settings: Callable[[int], Settings]) -> LaneOptimizer:
        """Give each solo its optimizer, and return the lanes' one."""
        lanes = [settings(lane) for lane in range(len(self.solos))]
        build = getattr(torch.optim, name)
        self.solo_optimizers = [build(solo.parameters(), **lane) for solo, lane in zip(self.solos, lanes, strict=True)]
        merged = {key: merge([lane[key] for lane in lanes], self.roster) for key in lanes[0]}
        return fuse_optimizer(name, self.model, self.roster, **merged)

    def set_grads(self, skip: Sequence[int] = ()) -> None:
        solo_params = [list(solo.parameters()) for solo in self.solos]
        for index, param in enumerate(self.model.parameters()):
            grads = torch.randn_like(stack_of(param))
            stack_of(param).grad = None if index in skip else grads.clone()
            for params, grad in zip(solo_params, grads, strict=True):
                params[index].grad = None if index in skip else grad.clone()

    def run(self, optimizer: LaneOptimizer, num_steps: int) -> None:
        for _ in range(num_steps):
            self.set_grads()
            optimizer.step()
            for solo in self.solo_optimizers:
                solo.step()

    def narrow(self, optimizer: LaneOptimizer, places: Sequence[int]) -> None:
        self.roster.narrow(places)
        narrow_model(self.model, places, self.roster)
        optimizer.narrow(places)
        self.solos = [self.solos[place] for place in places]
        self.solo_optimizers = [self.solo_optimizers[place] for place in places]

    def check(self) -> None:
        for index, param in enumerate(self.model.parameters()):
            expected = torch.stack([list(solo.parameters())[index].detach() for solo in self.solos])
            rtol = 1e-12 if expected.dtype == torch.float64 else 1e-6
            torch.testing.assert_close(stack_of(param).detach(), expected, rtol=rtol, atol=rtol)


def check_states(found: Settings, expected: Settings) -> None:
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for index, kept in expected["state"].items():
        assert found["state"][index].keys() == kept.keys()
        for name, value in kept.items():
            torch.testing.assert_close(found["state"][index][name], value, rtol=1e-12, atol=1e-12)
