"""Stand-ins for the forward of torch's own layers, which only say what shape comes out.

They save most of the time of a trace, and recurrent layers, whose kernels take no symbols, could not be traced
without. Shapes: N = examples, T = steps, I = inputs, H = hidden, D = directions times layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from headwater.torch_private import BatchNorm, parameters_of

Forward: TypeAlias = Callable[..., Any]


def stand_in(module: nn.Module) -> None:
    """Replace the forward of a layer (a copy made for tracing), if it is the one that torch gave it."""
    for kind, forward in _FORWARDS.items():
        if isinstance(module, kind) and type(module).forward is _forward_of(kind) and _has_own_tensors(module):
            module.forward = MethodType(forward, module)
            return


def _forward_of(kind: type[nn.Module]) -> Forward:
    forward: Forward = kind.forward
    return forward


def _has_own_tensors(module: nn.Module) -> bool:
    """Whether the weights are plain parameters, neither computed from others nor changed by hooks."""
    weight = getattr(module, "weight", None)
    return not hasattr(module, "parametrizations") and (weight is None or "weight" in parameters_of(module))


def _same(left: int, right: int) -> None:
    if left != right:
        raise ValueError(f"a tensor of size {left} meets a layer of size {right}")


def _keep(module: nn.Module, x: Tensor) -> Tensor:
    return x


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    _same(x.shape[-1], module.in_features)
    return x.new_empty((*x.shape[:-1], module.out_features))


def _convolve(module: Any, x: Tensor) -> Tensor:
    if isinstance(module.padding, str) or x.dim() != module.weight.dim():
        result: Tensor = type(module).forward(module, x)
        return result
    _same(x.shape[1], module.in_channels)
    sides = zip(x.shape[2:], module.padding, module.dilation, module.kernel_size, module.stride, strict=True)
    space = [(size + 2 * pad - wide * (kernel - 1) - 1) // step + 1 for size, pad, wide, kernel, step in sides]
    return x.new_empty((x.shape[0], module.out_channels, *space))


def _normalise_channels(module: Any, x: Tensor) -> Tensor:
    _same(x.shape[1], module.num_features)
    return x.new_empty(x.shape)


def _normalise_groups(module: nn.GroupNorm, x: Tensor) -> Tensor:
    _same(x.shape[1], module.num_channels)
    return x.new_empty(x.shape)


def _normalise_last(module: Any, x: Tensor) -> Tensor:
    for size, wanted in zip(x.shape[-len(module.normalized_shape) :], module.normalized_shape, strict=True):
        _same(size, wanted)
    return x.new_empty(x.shape)


def _attend(module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    call = inspect.signature(nn.MultiheadAttention.forward).bind(module, *args, **kwargs)
    call.apply_defaults()
    query, key, value = (call.arguments[name] for name in ("query", "key", "value"))
    for tensor, wanted in ((query, module.embed_dim), (key, module.kdim), (value, module.vdim)):
        _same(tensor.shape[-1], wanted or module.embed_dim)
    _same(module.out_proj.in_features, module.embed_dim)
    _same(module.out_proj.out_features, module.embed_dim)
    steps = 1 if module.batch_first or query.dim() == 2 else 0
    batch = () if query.dim() == 2 else (query.shape[1 - steps],)
    heads = () if call.arguments["average_attn_weights"] else (module.num_heads,)
    lengths = (query.shape[-2], key.shape[-2]) if module.batch_first else (query.shape[0], key.shape[0])
    weights = query.new_empty((*batch, *heads, *lengths)) if call.arguments["need_weights"] else None
    return query.new_empty(query.shape), weights


def _recur(module: nn.RNNBase, x: Tensor, hx: Any = None) -> Any:
    if not isinstance(x, Tensor):
        raise TypeError("a recurrent layer was given packed sequences")
    _same(x.shape[-1], module.input_size)
    directions = 2 if module.bidirectional else 1
    out = module.proj_size or module.hidden_size
    batch = () if x.dim() == 2 else (x.shape[0 if module.batch_first else 1],)
    h_DNH = x.new_empty((directions * module.num_layers, *batch, out))
    c_DNH = x.new_empty((directions * module.num_layers, *batch, module.hidden_size))
    for given, state in zip(hx if isinstance(hx, tuple) else (hx,), (h_DNH, c_DNH), strict=False):
        if given is not None:
            _same(given.shape[-1], state.shape[-1])
    return x.new_empty((*x.shape[:-1], directions * out)), (h_DNH, c_DNH) if module.mode == "LSTM" else h_DNH


def _recur_once(module: nn.RNNCellBase, x: Tensor, hx: Any = None) -> Any:
    _same(x.shape[-1], module.input_size)
    for given in hx if isinstance(hx, tuple) else (hx,):
        if given is not None:
            _same(given.shape[-1], module.hidden_size)
    h_NH = x.new_empty((*x.shape[:-1], module.hidden_size))
    return (h_NH, torch.empty_like(h_NH)) if isinstance(module, nn.LSTMCell) else h_NH


_FORWARDS: Mapping[type[nn.Module], Forward] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolve,
    nn.Conv2d: _convolve,
    nn.Conv3d: _convolve,
    BatchNorm: _normalise_channels,
    nn.GroupNorm: _normalise_groups,
    nn.LayerNorm: _normalise_last,
    nn.RMSNorm: _normalise_last,
    nn.MultiheadAttention: _attend,
    nn.LSTM: _recur,
    nn.GRU: _recur,
    nn.RNN: _recur,
    nn.LSTMCell: _recur_once,
    nn.GRUCell: _recur_once,
    nn.RNNCell: _recur_once,
    nn.modules.dropout.Dropout: _keep,
    nn.modules.dropout.Dropout2d: _keep,
    nn.ReLU: _keep,
    nn.ReLU6: _keep,
    nn.LeakyReLU: _keep,
    nn.ELU: _keep,
    nn.GELU: _keep,
    nn.SiLU: _keep,
    nn.Hardswish: _keep,
    nn.Hardsigmoid: _keep,
    nn.Sigmoid: _keep,
    nn.Tanh: _keep,
}
