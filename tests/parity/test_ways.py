"""Every way to compute a call gives the numbers of plain PyTorch, whichever is the fastest on this machine."""

from __future__ import annotations

import pytest
import torch
from tests.parity.harness import Case, open_setup, require_parity, train_lanes, train_plain
from tests.parity.tasks import RECIPES
from tests.parity.zoo import PLAIN_TASKS


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("mlp", "wide"), ("mlp", "batched"), ("cnn", "looped"), ("cnn", "side by side"), ("cnn", "product"),
        ("cnn", "batched"), ("separable", "looped"), ("separable", "side by side"), ("separable", "product"),
        ("lstm", "fused"), ("lstm", "looped"), ("gru", "fused"), ("gru", "looped"),
    ],
)  # fmt: skip
def test_lanes_equal_plain_runs_in_every_way(name: str, way: str) -> None:
    case = Case(task=PLAIN_TASKS[name], recipe=RECIPES["sgd"], dtype=torch.float64)
    setup = open_setup(case, way)
    settings = case.settings(3)
    lanes = train_lanes(case, settings, setup)
    assert way in setup.strategies.choices.values()
    for number, item in enumerate(settings):
        require_parity(lanes[number], train_plain(case, item), tolerance=1e-9)
