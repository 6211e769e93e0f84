"""Stands for a user's module: it does nothing with `float`, `int`, `max`, `min` and `math` but call them."""

import math
from typing import Any

import torch
from torch import nn

from headwater.train import Trial


def compute(x: Any, y: Any) -> dict[str, Any]:
    return {
        "float": float(x),
        "int": int(x),
        "max": max(x, y),
        "max of a list": max([x, y, 0]),
        "min": min(x, 2),
        "sqrt": math.sqrt(x),
        "pi": math.pi,
        "power": math.pow(x, 2),
    }


class Caller:
    """A training function may be an object too."""

    def __call__(self, x: Any) -> Any:
        return float(x)

    def method(self, x: Any) -> Any:
        return math.floor(x)


def train(trial: Trial) -> None:
    model = trial.prepare_model(nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0).mul_(trial.config["x"])
    best = float("inf")
    for scale in (2, 1, 3):
        loss = model(torch.ones(1)).detach().sum() * scale
        best = min(best, float(loss))
    trial.report(best=best, root=math.sqrt(best))
