"""Steps of recurrent layers equal those of separate modules: outputs, states and all gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.fuse.test_convolution import build, compare
from torch import Tensor, nn

from headwater.fuse.strategies import Strategies

CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": partial(nn.RNNCell, nonlinearity="relu"),
}


class Stepping(nn.Module):
    """A cell that is stepped by hand, the first time from no state."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        state = None
        for part in x:
            state = self.cell(part, state)
        return state


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 4)])
def test_cells_of_lanes_step_as_separate_modules_do(kind: str, bias: bool, shape: tuple[int, ...]) -> None:
    models = build(3, torch.float64, lambda: Stepping(CELLS[kind](4, 5, bias=bias)))
    x = torch.randn(shape, dtype=torch.float64)
    compare(models, lambda model: model(x), Strategies())
