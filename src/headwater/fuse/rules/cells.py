"""One step of a recurrent layer, as `nn.LSTMCell` and its kin take it: the arithmetic of torch's own, for all lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.fuse.mode import LaneMode


def _step_lstm(
    mode: LaneMode, func: Any, input: Tensor, hx: tuple[Tensor, Tensor], *weights: Any
) -> tuple[Tensor, Tensor]:
    hidden, cell = hx
    with mode:
        into, forget, new, out = _add_gates(input, hidden, *weights).chunk(4, -1)
        cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
        return out.sigmoid() * cell.tanh(), cell


def _step_gru(mode: LaneMode, func: Any, input: Tensor, hx: Tensor, *weights: Any) -> Tensor:
    with mode:
        of_hidden, of_input = (gates.chunk(3, -1) for gates in _find_gates(input, hx, *weights))
        reset, update = (torch.sigmoid(of_hidden[place] + of_input[place]) for place in (0, 1))
        new = torch.tanh(of_input[2] + of_hidden[2] * reset)
        return (hx - new) * update + new


def _step_rnn(
    act: Callable[[Tensor], Tensor], mode: LaneMode, func: Any, input: Tensor, hx: Tensor, *weights: Any
) -> Tensor:
    with mode:
        return act(_add_gates(input, hx, *weights))


def _add_gates(input: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    of_hidden, of_input = _find_gates(input, hidden, *weights)
    return of_hidden + of_input


def _find_gates(
    input: Tensor, hidden: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return what the hidden state and the input each add to the gates."""
    return F.linear(hidden, w_hh, b_hh), F.linear(input, w_ih, b_ih)


RULES: dict[Any, Any] = {
    torch.lstm_cell: _step_lstm,
    torch.gru_cell: _step_gru,
    torch.rnn_tanh_cell: partial(_step_rnn, torch.tanh),
    torch.rnn_relu_cell: partial(_step_rnn, torch.relu),
}
