"""The coordinate check of the parametrization: activations are as large in one width as in another, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from headwater.scale.initialisation import spread_weights
from headwater.scale.output_sizes import note_sizes
from headwater.scale.parametrization import multipliers, split_groups
from headwater.scale.roles import find_ratios, shapes_of

Build: TypeAlias = Callable[[int], tuple[nn.Module, Callable[[], object]]]
"""Builds the model of a width, and the function that trains it by one step."""

WIDTHS = (64, 256, 1024)
NUM_STEPS = 5
SEEDS = (0, 1, 2, 3)  # two models of width 64 may differ by more than the limit from their weights alone
OPTIMIZERS = [
    pytest.param("SGD", {"lr": 2.0, "weight_decay": 0.01}, id="SGD"),
    pytest.param("SGD", {"lr": 1.5, "momentum": 0.9}, id="SGD with momentum"),
    pytest.param("Adam", {"lr": 2e-3}, id="Adam"),
    pytest.param("Adam", {"lr": 2e-3, "weight_decay": 1e-4}, id="Adam with coupled decay"),
    pytest.param("AdamW", {"lr": 2e-3, "weight_decay": 0.1}, id="AdamW"),
    pytest.param("NAdam", {"lr": 1e-3}, id="NAdam"),
    pytest.param("Adamax", {"lr": 2e-3}, id="Adamax"),
    pytest.param("Adagrad", {"lr": 2e-3}, id="Adagrad"),
    pytest.param("RMSprop", {"lr": 2e-4}, id="RMSprop"),
]


def read_digits() -> tuple[Tensor, Tensor]:
    images, digits = load_digits(return_X_y=True)
    return torch.tensor(images[:128] / 16 - 0.3, dtype=torch.float32), torch.tensor(digits[:128])


def build_mlp(width: int) -> nn.Sequential:
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def build_scaled(width: int) -> nn.Module:
    """The surrogate of this width, started from blocks of the widest model's weights, its readout from zero."""
    model, target = build_mlp(width), build_mlp(WIDTHS[-1] + 64)
    for parameter in target[-1].parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        for small, large in zip(model.parameters(), target.parameters(), strict=True):
            small.copy_(large[tuple(slice(size) for size in small.shape)])
    spread_weights(model, find_ratios(model, shapes_of(target)))
    return model


def record_sizes(build: Build, width: int, num_steps: int = NUM_STEPS, seed: int = 0) -> list[dict[str, float]]:
    """Return the mean absolute output of each module, for each step of one training."""
    torch.manual_seed(seed)
    model, step = build(width)
    steps = []
    for _ in range(num_steps):
        seen: dict[str, list[float]] = {}
        handles = note_sizes(model, seen)
        step()
        for handle in handles:
            handle.remove()
        steps.append({name: fmean(sizes) for name, sizes in seen.items()})
    return steps


def measure_drifts(build: Build, seeds: Sequence[int]) -> dict[str, float]:
    """Return by how much the output of each module differs between widths, as the largest ratio over all steps.

    Sizes are means over the seeds. The first step does not count: before the first update, readouts are zero.
    """
    runs = {width: [record_sizes(build, width, seed=seed) for seed in seeds] for width in WIDTHS}
    drifts: dict[str, float] = {}
    for step in range(1, NUM_STEPS):
        for name in runs[WIDTHS[0]][0][step]:
            sizes = [fmean(steps[step][name] for steps in runs[width]) for width in WIDTHS]
            assert all(math.isfinite(size) and size > 0 for size in sizes)
            drifts[name] = max(drifts.get(name, 1.0), max(sizes) / min(sizes))
    return drifts


def make_build(kind: str, options: dict[str, Any], *, scaled: bool, is_decoupled: bool = False) -> Build:
    images, digits = read_digits()

    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = build_scaled(width) if scaled else build_mlp(width)
        params: Any = model.parameters()
        if scaled:
            ratios = find_ratios(model, shapes_of(build_mlp(WIDTHS[0])))
            found = multipliers(kind, ratios, options={"decoupled_weight_decay": is_decoupled})
            params = split_groups(params, options, dict(model.named_parameters()), found).params
        optimizer = getattr(torch.optim, kind)(params, **options)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), digits).backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_activations_keep_their_size_where_plain_ones_drift(kind: str, options: dict[str, Any]) -> None:
    assert max(measure_drifts(make_build(kind, options, scaled=True), SEEDS).values()) <= 1.2
    assert max(measure_drifts(make_build(kind, options, scaled=False), SEEDS[:1]).values()) > 4


@pytest.mark.parametrize(("is_decoupled", "least", "most"), [(False, 0.5, 1.5), (True, 5.0, math.inf)])
def test_coupled_decay_that_suits_the_base_suits_a_wider_model(is_decoupled: bool, least: float, most: float) -> None:
    def train(width: int) -> float:
        torch.manual_seed(0)
        model, step = build(width)
        for _ in range(80):
            step()
        images, digits = read_digits()
        return float(F.cross_entropy(model(images), digits).detach())

    # The mup package treats coupled decay by the rule for decoupled decay.
    build = make_build("Adam", {"lr": 2e-3, "weight_decay": 1e-2}, scaled=True, is_decoupled=is_decoupled)
    assert least < train(256) / train(64) < most


def test_outputs_of_every_kind_of_module_are_noted() -> None:
    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, width)
            self.recurrent = nn.LSTM(width, width, batch_first=True)
            self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, tokens_NT: Tensor) -> dict[str, Tensor]:
            x_NTD, _ = self.recurrent(self.embedding(tokens_NT))
            return {"tokens": tokens_NT, "x": self.attention(x_NTD, x_NTD, x_NTD)[0] * self.scale}

    def build(width: int) -> tuple[nn.Module, Callable[[], object]]:
        model = Net(width)
        return model, lambda: model(torch.zeros(2, 3, dtype=torch.long))

    (sizes,) = record_sizes(build, 4, num_steps=1)
    assert list(sizes) == ["embedding", "recurrent", "attention", "model"]
    assert all(size > 0 for size in sizes.values())
