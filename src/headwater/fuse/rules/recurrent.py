"""Recurrent layers: step by step with the lanes in one batched product, or lane by lane, whichever is faster.

Shapes: L = lanes (twice as many in a layer of two directions), T = time, U = T + 1, N = sequences, M = T times N,
I = inputs, H = hidden units, D = directions, P = gates times H, G = slots (of a gate's gradients) times H. Inside a
layer the sequences come last, so that a gate of a lane is one piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from headwater.errors import CannotFuseError
from headwater.fuse.mode import LaneMode
from headwater.fuse.strategies import rehearse
from headwater.torch_private import apply_plainly, is_lane_tensor, lanes_of, stack_of

Saved: TypeAlias = tuple[Tensor, ...]
Weights: TypeAlias = tuple[Tensor, Tensor | None]
"""A matrix and its bias."""

_CACHED_ELEMENTS = 2**16
"""As many numbers of a kind are worked on at once, so that caches hold them from one operation to the next."""


class Call(NamedTuple):
    """The arguments of `torch.lstm` and its kin for padded sequences."""

    input: Tensor
    states: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that computes, in a fixed order."""
        return (self.input, *self.states, *self.weights)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What torch gets."""
        return self.input, self.states if len(self.states) == 2 else self.states[0], self.weights, *self[3:]

    def holding(self, tensors: Sequence[Tensor]) -> Call:
        """Return the same call on other tensors, given in the order of `tensors`."""
        cut = 1 + len(self.states)
        return self._replace(input=tensors[0], states=tuple(tensors[1:cut]), weights=tuple(tensors[cut:]))


class Cell(NamedTuple):
    """How the hidden state moves on, and how its gradient moves back."""

    num_slots: int
    """Gates whose gradients differ. The last of them belong to the hidden state, in the order of its weights, the first
    to the input; where both do not share all gates, the last gate of the input comes first."""
    sums_biases: bool
    """Whether the bias of the hidden state only ever adds to that of the input."""
    run: Callable[..., Saved]
    """Fills the hidden states from the first on, and turns the gates, which are read in turn, into results."""
    run_back: Callable[..., None]
    """Fills the gradients of the gates, adds to those of the hidden states, moves that of the cell to the start."""


def _recur(mode: LaneMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    call = _read(args, kwargs)
    if call is None:
        return mode.run_looped(func, args, kwargs)
    if any(tensor.requires_grad and not is_lane_tensor(tensor) for tensor in call.tensors):
        return NotImplemented
    learns = torch.is_grad_enabled() and any(mode.stack(tensor).requires_grad for tensor in call.tensors)
    kind = (call.weights[0].dtype, *(tuple(weight.shape) for weight in call.weights))
    key = (func.__name__, (mode.num_lanes - 1).bit_length(), learns, is_lane_tensor(call.input), *kind)
    ways = {
        "fused": _rehearsal(mode, call, lambda copy: _run_fused(mode, _CELLS[func], copy)),
        "looped": _rehearsal(mode, call, lambda copy: mode.run_looped(func, copy.arguments)),
    }
    if mode.strategies.choose(key, ways, size=call.input.shape[0] * call.input.shape[1]) == "fused":
        return _run_fused(mode, _CELLS[func], call)
    return mode.run_looped(func, args, kwargs)


def _read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """Return the arguments of a call that can be fused; packed sequences and a few rarities cannot."""
    if kwargs or len(args) != 9 or not isinstance(args[2], list | tuple) or not args[0].numel():
        return None
    states = (args[1],) if isinstance(args[1], Tensor) else tuple(args[1])
    call = Call(args[0], states, tuple(args[2]), *args[3:])
    num_weights = (4 if call.has_biases else 2) * call.num_layers * (2 if call.bidirectional else 1)
    if len(call.weights) != num_weights or not all(is_lane_tensor(weight) for weight in call.weights):
        return None  # a projection of the hidden state brings weights of its own
    like = call.weights[0]
    if like.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(like.device.type):
        return None
    return call if all(tensor.dtype == like.dtype for tensor in call.tensors) else None


def _rehearsal(mode: LaneMode, call: Call, run: Any) -> Any:
    """The call for the stopwatch, without dropout, so that no random number is spent on it."""
    is_lane = [is_lane_tensor(tensor) for tensor in call.tensors]

    def run_copy(*copies: Tensor) -> tuple[Tensor, ...]:
        tensors = [lanes_of(copy) if lane else copy for copy, lane in zip(copies, is_lane, strict=True)]
        answers = run(call.holding(tensors)._replace(dropout=0.0))
        return tuple(stack_of(answer) for answer in answers)

    operands = [stack_of(tensor) if lane else tensor for tensor, lane in zip(call.tensors, is_lane, strict=True)]
    return rehearse(run_copy, operands)


def _run_fused(mode: LaneMode, cell: Cell, call: Call) -> tuple[Tensor, ...]:
    x_LTNI = _time_first(mode, call)
    weights = _split_evenly([stack_of(weight) for weight in call.weights], call.num_layers)
    states = [mode.stack(state).chunk(call.num_layers, 1) for state in call.states]
    ends = []
    for layer in range(call.num_layers):
        if layer and call.train and call.dropout:
            with mode:
                x_LTNI = stack_of(F.dropout(lanes_of(x_LTNI), call.dropout, True))
        own_states = [parts[layer] for parts in states]
        x_LTNI, *end = _run_layer(cell, x_LTNI, own_states, weights[layer], call.bidirectional)
        ends.append(end)
    y = x_LTNI.transpose(1, 2) if call.batch_first else x_LTNI
    return lanes_of(y), *(lanes_of(torch.cat(parts, 1)) for parts in zip(*ends, strict=True))


def _time_first(mode: LaneMode, call: Call) -> Tensor:
    if is_lane_tensor(call.input):
        stack = stack_of(call.input)
        return stack.transpose(1, 2) if call.batch_first else stack
    return mode.widen((call.input.transpose(0, 1) if call.batch_first else call.input).contiguous())


def _split_evenly(items: Sequence[Tensor], num_parts: int) -> list[Sequence[Tensor]]:
    size = len(items) // num_parts
    return [items[start : start + size] for start in range(0, len(items), size)]


def _run_layer(
    cell: Cell, x_LTNI: Tensor, states_LDNH: Sequence[Tensor], weights: Sequence[Tensor], both_ways: bool
) -> list[Tensor]:
    """Return the output and the states at the end; the way back is so many more lanes, whose time is reversed."""
    if both_ways:
        weights = [torch.cat(pair) for pair in zip(*_split_evenly(weights, 2), strict=True)]
        x_LTNI = torch.cat([x_LTNI, x_LTNI.flip(1)])
    num_directions = states_LDNH[0].shape[1]
    states: list[Tensor | None] = [state.transpose(0, 1).flatten(0, 1) for state in states_LDNH]
    y_LTNH, *ends_LNH = _Layer.apply(cell, x_LTNI, *(states if len(states) == 2 else [*states, None]), *weights)
    if both_ways:
        there, back = y_LTNH.chunk(2)
        y_LTNH = torch.cat([there, back.flip(1)], -1)
    ends = [end.view(num_directions, -1, *end.shape[1:]).transpose(0, 1) for end in ends_LNH if end is not None]
    return [y_LTNH, *ends]


class _Layer(torch.autograd.Function):
    """One layer in one direction, from the first step to the last and back."""

    apply: Any = classmethod(apply_plainly)

    @staticmethod
    def forward(
        ctx: Any, cell: Cell, x_LTNI: Tensor, h_LNH: Tensor, c_LNH: Tensor | None, weight_LPI: Tensor,
        weight_LPH: Tensor, bias_LP: Tensor | None = None, other_bias_LP: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        num_lanes, num_steps, num_sequences, _ = x_LTNI.shape
        gates_TLPN = x_LTNI.new_empty(num_steps, num_lanes, weight_LPI.shape[1], num_sequences)
        hidden_ULHN = x_LTNI.new_empty(num_steps + 1, num_lanes, weight_LPH.shape[2], num_sequences)
        hidden_ULHN[0] = h_LNH.mT
        if cell.sums_biases and bias_LP is not None and other_bias_LP is not None:
            bias_LP, other_bias_LP = bias_LP + other_bias_LP, None
        reading = _read_input(x_LTNI, (weight_LPI, bias_LP), gates_TLPN)
        saved = cell.run(reading, gates_TLPN, (weight_LPH, other_bias_LP), hidden_ULHN, c_LNH)
        ctx.cell = cell
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x_LTNI, weight_LPI, weight_LPH, gates_TLPN, hidden_ULHN, *saved)
        c_end = None if c_LNH is None else saved[0][-1].mT
        answers = hidden_ULHN[1:].permute(1, 0, 3, 2), hidden_ULHN[-1].mT, c_end
        return tuple(None if item is None else item.clone(memory_format=torch.contiguous_format) for item in answers)

    @staticmethod
    def backward(ctx: Any, d_y_LTNH: Any, d_h_LNH: Any, d_c_LNH: Any) -> Any:
        if torch.is_grad_enabled():
            raise CannotFuseError("the code takes the gradient of a gradient through a recurrent layer")
        x_LTNI, weight_LPI, weight_LPH, *saved = ctx.saved_tensors
        num_lanes, num_steps, num_sequences, _ = x_LTNI.shape
        d_hidden_ULHN = x_LTNI.new_zeros(num_steps + 1, num_lanes, weight_LPH.shape[2], num_sequences)
        d_c_LHN = torch.zeros_like(d_hidden_ULHN[0])
        if d_y_LTNH is not None:
            d_hidden_ULHN[1:] = d_y_LTNH.permute(1, 0, 3, 2)
        if d_h_LNH is not None:
            d_hidden_ULHN[-1] += d_h_LNH.mT
        if d_c_LNH is not None:
            d_c_LHN += d_c_LNH.mT
        num_slots = ctx.cell.num_slots * weight_LPH.shape[2]
        d_gates_TLGN = x_LTNI.new_empty(num_steps, num_lanes, num_slots, num_sequences)
        ctx.cell.run_back(d_gates_TLGN, weight_LPH.mT, d_hidden_ULHN, d_c_LHN, *saved)
        needs = ctx.needs_input_grad
        d_x, *d_weights = _sum_over_time(d_gates_TLGN, x_LTNI, saved[1], weight_LPI, needs[1])
        d_start = d_hidden_ULHN[0].mT, d_c_LHN.mT if needs[3] else None
        return (None, d_x, *d_start, *d_weights)[: len(needs)]


def _read_input(x_LTNI: Tensor, weights: Weights, gates_TLPN: Tensor) -> Iterator[Tensor]:
    """Fill the gates with what they read of the input, each step just before it is needed, while caches hold it."""
    for x_LNI, gates_LPN in zip(x_LTNI.unbind(1), gates_TLPN.unbind(), strict=True):
        yield _times(weights, x_LNI.mT, gates_LPN)


def _times(weights: Weights, x_LIN: Tensor, out: Tensor) -> Tensor:
    weight_LPI, bias_LP = weights
    if bias_LP is None:
        return torch.bmm(weight_LPI, x_LIN, out=out)
    return torch.baddbmm(bias_LP.unsqueeze(2), weight_LPI, x_LIN, out=out)


def _sum_over_time(
    d_gates_TLGN: Tensor, x_LTNI: Tensor, hidden_ULHN: Tensor, weight_LPI: Tensor, needs_x: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the input, the two weights and the two biases, each in one product over all steps."""
    num_lanes, num_read, _ = weight_LPI.shape
    d_gates_LGM, hidden_LHM = (stack.permute(1, 2, 0, 3).flatten(2) for stack in (d_gates_TLGN, hidden_ULHN[:-1]))
    extra = d_gates_LGM.shape[1] - num_read
    d_read_LPM, d_recurred_LPM = d_gates_LGM[:, :num_read], d_gates_LGM[:, extra:]
    d_x_LMI = torch.bmm(d_read_LPM.mT, _roll(weight_LPI, extra)) if needs_x else None
    d_weight_LPI = torch.bmm(d_read_LPM, x_LTNI.reshape(num_lanes, d_gates_LGM.shape[2], -1))
    d_weight_LPH = torch.bmm(d_recurred_LPM, hidden_LHM.mT)
    d_bias_LG = d_gates_LGM.sum(2)
    d_x_LTNI = None if d_x_LMI is None else d_x_LMI.view(x_LTNI.shape)
    d_biases = _roll(d_bias_LG[:, :num_read], -extra), d_bias_LG[:, extra:].clone()
    return d_x_LTNI, _roll(d_weight_LPI, -extra), d_weight_LPH, *d_biases


def _roll(rows: Tensor, count: int) -> Tensor:
    return rows.roll(count, 1) if count else rows


def _run_lstm(
    reading: Iterator[Tensor], gates_TLPN: Tensor, weights: Weights, hidden_ULHN: Tensor, c_LNH: Tensor | None
) -> Saved:
    """Gates: input, forget, cell, output."""
    weight_LPH, _ = weights
    i, f, g, o = (gate.unbind() for gate in gates_TLPN.chunk(4, 2))
    i_and_f = gates_TLPN.chunk(2, 2)[0].unbind()
    cells_ULHN = gates_TLPN.new_empty(len(i) + 1, *i[0].shape)
    squashed_TLHN = torch.empty_like(cells_ULHN[1:])
    hidden, cells, squashed = hidden_ULHN.unbind(), cells_ULHN.unbind(), squashed_TLHN.unbind()
    cells[0].copy_(c_LNH.mT)  # type: ignore[union-attr]  # an LSTM always has it
    for t, gates in enumerate(reading):
        gates.baddbmm_(weight_LPH, hidden[t])
        i_and_f[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], cells[t], out=cells[t + 1]).addcmul_(i[t], g[t])
        torch.mul(o[t], torch.tanh(cells[t + 1], out=squashed[t]), out=hidden[t + 1])
    return cells_ULHN, squashed_TLHN


def _run_lstm_back(
    d_gates_TLGN: Tensor, weight_LHP: Tensor, d_hidden_ULHN: Tensor, d_c_LHN: Tensor, *saved: Tensor
) -> None:
    gates_TLPN, _, cells_ULHN, squashed_TLHN = saved
    forget, d_gates, d_hidden = gates_TLPN.chunk(4, 2)[1].unbind(), d_gates_TLGN.unbind(), d_hidden_ULHN.unbind()
    d_i_f_g, d_o = _slots(d_gates_TLGN)[:, :, :3].unbind(), d_gates_TLGN.chunk(4, 2)[3].unbind()
    t = len(d_gates)
    factors = (*gates_TLPN.chunk(4, 2), cells_ULHN[:-1], squashed_TLHN, *d_gates_TLGN.chunk(4, 2))
    for pieces in _cut_backwards(factors):
        for through in reversed(_differentiate_lstm(*pieces).unbind()):
            t -= 1
            d_c_LHN.addcmul_(d_hidden[t + 1], through)
            d_i_f_g[t].mul_(d_c_LHN.unsqueeze(1))
            d_o[t].mul_(d_hidden[t + 1])
            d_c_LHN.mul_(forget[t])
            d_hidden[t].baddbmm_(weight_LHP, d_gates[t])


def _differentiate_lstm(
    i: Tensor, f: Tensor, g: Tensor, o: Tensor, cells: Tensor, squashed: Tensor, *d_gates: Tensor
) -> Tensor:
    """Fill in what the gradients of the state are to be multiplied by; return what leads from hidden to cell."""
    d_i, d_f, d_g, d_o = d_gates
    _sigmoid_back(g, i, grad_input=d_i)
    _sigmoid_back(cells, f, grad_input=d_f)
    _tanh_back(i, g, grad_input=d_g)
    _sigmoid_back(squashed, o, grad_input=d_o)
    through: Tensor = _tanh_back(o, squashed, grad_input=torch.empty_like(squashed))
    return through


def _run_gru(
    reading: Iterator[Tensor], gates_TLPN: Tensor, weights: Weights, hidden_ULHN: Tensor, c_LNH: Tensor | None
) -> Saved:
    """Gates: reset, update, new. Slots: new (for the input), reset, update, new (for the hidden state)."""
    recurred_TLPN = torch.empty_like(gates_TLPN)
    reset, update, recurred = (part.unbind() for part in recurred_TLPN.chunk(3, 2))
    num_both = 2 * reset[0].shape[1]
    both, new = recurred_TLPN[:, :, :num_both].unbind(), gates_TLPN[:, :, num_both:].unbind()
    hidden, whole = hidden_ULHN.unbind(), recurred_TLPN.unbind()
    for t, gates in enumerate(reading):
        _times(weights, hidden[t], whole[t])
        both[t].add_(gates[:, :num_both]).sigmoid_()
        new[t].addcmul_(reset[t], recurred[t]).tanh_()
        torch.lerp(new[t], hidden[t], update[t], out=hidden[t + 1])
    return (recurred_TLPN,)


def _run_gru_back(
    d_gates_TLGN: Tensor, weight_LHP: Tensor, d_hidden_ULHN: Tensor, d_c_LHN: Tensor, *saved: Tensor
) -> None:
    gates_TLPN, hidden_ULHN, recurred_TLPN = saved
    d_hidden, updates = d_hidden_ULHN.unbind(), recurred_TLPN.chunk(3, 2)[1].unbind()
    d_each, d_recurred = _slots(d_gates_TLGN).unbind(), d_gates_TLGN[:, :, weight_LHP.shape[1] :].unbind()
    t = len(d_each)
    factors = (gates_TLPN.chunk(3, 2)[2], *recurred_TLPN.chunk(3, 2), hidden_ULHN[:-1], *d_gates_TLGN.chunk(4, 2))
    for pieces in _cut_backwards(factors):
        _differentiate_gru(*pieces)
        for _ in range(len(pieces[0])):
            t -= 1
            d_each[t].mul_(d_hidden[t + 1].unsqueeze(1))
            d_hidden[t].addcmul_(d_hidden[t + 1], updates[t]).baddbmm_(weight_LHP, d_recurred[t])


def _differentiate_gru(
    new: Tensor, reset: Tensor, update: Tensor, recurred: Tensor, before: Tensor, *d_gates: Tensor
) -> None:
    """Fill in what the gradient of the hidden state is to be multiplied by."""
    d_new, d_reset, d_update, d_recurred = d_gates
    _tanh_back(1 - update, new, grad_input=d_new)
    _sigmoid_back(before - new, update, grad_input=d_update)
    _sigmoid_back(d_new * recurred, reset, grad_input=d_reset)
    torch.mul(d_new, reset, out=d_recurred)


def _run_rnn(
    activate: Callable[..., Tensor], reading: Iterator[Tensor], _: Tensor, weights: Weights, hidden_ULHN: Tensor,
    c_LNH: Tensor | None,
) -> Saved:  # fmt: skip
    hidden = hidden_ULHN.unbind()
    for t, gates in enumerate(reading):
        activate(gates.baddbmm_(weights[0], hidden[t]), out=hidden[t + 1])
    return ()


def _run_rnn_back(
    activate_back: Callable[..., Tensor], d_gates_TLGN: Tensor, weight_LHP: Tensor, d_hidden_ULHN: Tensor,
    d_c_LHN: Tensor, *saved: Tensor,
) -> None:  # fmt: skip
    hidden, d_gates, d_hidden = saved[1].unbind(), d_gates_TLGN.unbind(), d_hidden_ULHN.unbind()
    for t in reversed(range(len(d_gates))):
        activate_back(d_hidden[t + 1], hidden[t + 1], grad_input=d_gates[t])
        d_hidden[t].baddbmm_(weight_LHP, d_gates[t])


def _slots(gates_TLGN: Tensor) -> Tensor:
    """Return the four slots, each in a place of its own behind the lanes."""
    num_steps, num_lanes, _, num_sequences = gates_TLGN.shape
    return gates_TLGN.view(num_steps, num_lanes, 4, -1, num_sequences)


def _cut_backwards(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of all steps, from the last step on, into pieces that caches can hold."""
    num_steps, size = len(tensors[0]), max(1, _CACHED_ELEMENTS // tensors[0][0].numel())
    pieces = [tensor.chunk(-(-num_steps // size)) for tensor in tensors]
    yield from reversed(list(zip(*pieces, strict=True)))


_sigmoid_back: Any = torch.ops.aten.sigmoid_backward.grad_input
_tanh_back: Any = torch.ops.aten.tanh_backward.grad_input
_relu_back: Any = partial(torch.ops.aten.threshold_backward.grad_input, threshold=0)
_relu: Any = partial(torch.clamp_min, min=0)

_CELLS: dict[Any, Cell] = {
    torch.lstm: Cell(4, True, _run_lstm, _run_lstm_back),
    torch.gru: Cell(4, False, _run_gru, _run_gru_back),
    torch.rnn_tanh: Cell(1, True, partial(_run_rnn, torch.tanh), partial(_run_rnn_back, _tanh_back)),
    torch.rnn_relu: Cell(1, True, partial(_run_rnn, _relu), partial(_run_rnn_back, _relu_back)),
}

RULES: dict[Any, Any] = dict.fromkeys(_CELLS, _recur)
