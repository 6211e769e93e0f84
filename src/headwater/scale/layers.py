"""What torch's own layers say about their widths: how tensors and attributes hang together.

A width that several tensors and attributes of a layer share is one variable from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn

from headwater.scale.equations import Kind
from headwater.scale.layouts import Layout
from headwater.scale.polynomials import Polynomial, constant
from headwater.torch_private import ConvNd, ConvTransposeNd, NormBase, parameters_of

if TYPE_CHECKING:
    from headwater.scale.symbols import Symbols

AttributePath: TypeAlias = tuple[str | int, ...]
"""The way from a module to an integer: an attribute, then keys or attributes within its value."""

Shape: TypeAlias = tuple[Polynomial, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The widths of one layer: the shapes of its tensors, the values of its attributes."""

    shapes: Mapping[str, Shape]
    attributes: Mapping[AttributePath, Polynomial]
    layouts: Mapping[Polynomial, Layout] = field(default_factory=dict)


def declare(module: Any, path: str, symbols: Symbols) -> Declaration | None:
    """Return what is known of a layer of torch's own or of a subclass, None if it is not in the table."""
    for kind, rule in _RULES.items():
        if isinstance(module, kind):
            return rule(module, path, symbols)
    return None


def _linear(module: nn.Linear, path: str, symbols: Symbols) -> Declaration:
    out = symbols.new(f"{path}.out_features", module.out_features, Kind.DIMENSION)
    into = symbols.new(f"{path}.in_features", module.in_features, Kind.DIMENSION)
    return Declaration({"weight": (out, into), "bias": (out,)}, {("out_features",): out, ("in_features",): into})


def _bilinear(module: nn.Bilinear, path: str, symbols: Symbols) -> Declaration:
    names = ("out_features", "in1_features", "in2_features")
    sizes = tuple(symbols.new(f"{path}.{name}", getattr(module, name), Kind.DIMENSION) for name in names)
    return Declaration({"weight": sizes, "bias": sizes[:1]}, {(n,): s for n, s in zip(names, sizes, strict=True)})


def _convolution(module: Any, path: str, symbols: Symbols) -> Declaration:
    """With groups, both channel counts are multiples of their number; a depthwise layer has as many as channels."""
    transposed = isinstance(module, ConvTransposeNd)
    into, out, groups = _channels(module, path, symbols)
    kernel = tuple(constant(size) for size in module.weight.shape[2:])
    first, second = (into[0], out[1]) if transposed else (out[0], into[1])
    attributes: dict[AttributePath, Polynomial] = {("in_channels",): into[0], ("out_channels",): out[0]}
    if module.groups > 1:
        attributes["groups",] = groups
    return Declaration({"weight": (first, second, *kernel), "bias": (out[0],)}, attributes)


def _channels(module: Any, path: str, symbols: Symbols) -> tuple[Shape, Shape, Polynomial]:
    """The channels in and out, each whole and per group, and the number of groups."""
    number = module.groups
    into, out = module.in_channels // number, module.out_channels // number
    depthwise = number > 1 and 1 in (into, out)
    groups = symbols.new(f"{path}.groups", number, Kind.DIMENSION if depthwise else Kind.GROUPS)
    each_in, each_out = (
        constant(size) if depthwise else symbols.new(f"{path}.{name}", size, Kind.DIMENSION)
        for name, size in (("in_channels", into), ("out_channels", out))
    )
    return (groups * each_in, each_in), (groups * each_out, each_out), groups


def _normalisation(module: Any, path: str, symbols: Symbols) -> Declaration:
    size = symbols.new(f"{path}.num_features", module.num_features, Kind.DIMENSION)
    names = ("weight", "bias", "running_mean", "running_var")
    return Declaration(dict.fromkeys(names, (size,)), {("num_features",): size})


def _layer_norm(module: Any, path: str, symbols: Symbols) -> Declaration:
    sizes = [
        symbols.new(f"{path}.normalized_shape[{place}]", size, Kind.DIMENSION)
        for place, size in enumerate(module.normalized_shape)
    ]
    attributes: dict[AttributePath, Polynomial] = {("normalized_shape", i): size for i, size in enumerate(sizes)}
    return Declaration({"weight": tuple(sizes), "bias": tuple(sizes)}, attributes)


def _group_norm(module: nn.GroupNorm, path: str, symbols: Symbols) -> Declaration:
    groups = symbols.new(f"{path}.num_groups", module.num_groups, Kind.GROUPS)
    each = symbols.new(f"{path}.num_channels", module.num_channels // module.num_groups, Kind.QUOTIENT)
    shape = (groups * each,)
    return Declaration({"weight": shape, "bias": shape}, {("num_groups",): groups, ("num_channels",): groups * each})


def _embedding(module: Any, path: str, symbols: Symbols) -> Declaration:
    size = symbols.new(f"{path}.embedding_dim", module.embedding_dim, Kind.DIMENSION)
    return Declaration({"weight": (constant(module.num_embeddings), size)}, {("embedding_dim",): size})


def _prelu(module: nn.PReLU, path: str, symbols: Symbols) -> Declaration:
    size = symbols.new(f"{path}.num_parameters", module.num_parameters, Kind.DIMENSION)
    return Declaration({"weight": (size,)}, {("num_parameters",): size})


def _attention(module: nn.MultiheadAttention, path: str, symbols: Symbols) -> Declaration:
    heads = symbols.new(f"{path}.num_heads", module.num_heads, Kind.HEADS)
    each = symbols.new(f"{path}.head_dim", module.head_dim, Kind.HEAD_SIZE)
    whole = heads * each
    same = module.in_proj_weight is not None
    keys, values = (
        whole if same else symbols.new(f"{path}.{name}", getattr(module, name), Kind.DIMENSION)
        for name in ("kdim", "vdim")
    )
    three = constant(3) * whole
    shapes: dict[str, Shape] = {
        "in_proj_weight": (three, whole),
        "in_proj_bias": (three,),
        "q_proj_weight": (whole, whole),
        "k_proj_weight": (whole, keys),
        "v_proj_weight": (whole, values),
        "bias_k": (constant(1), constant(1), whole),
        "bias_v": (constant(1), constant(1), whole),
    }
    attributes: dict[AttributePath, Polynomial] = {
        ("num_heads",): heads,
        ("head_dim",): each,
        ("embed_dim",): whole,
        ("kdim",): keys,
        ("vdim",): values,
    }
    layouts = {three: Layout(((constant(3), whole),)), whole: Layout(((heads, each),))}
    return Declaration(shapes, attributes, layouts)


def _recurrent(module: nn.RNNBase, path: str, symbols: Symbols) -> Declaration:
    """All layers and directions share one hidden size; each tensor stacks the gates."""
    gates = constant({"LSTM": 4, "GRU": 3}.get(module.mode, 1))
    hidden = symbols.new(f"{path}.hidden_size", module.hidden_size, Kind.DIMENSION)
    into = symbols.new(f"{path}.input_size", module.input_size, Kind.DIMENSION)
    projected = symbols.new(f"{path}.proj_size", module.proj_size, Kind.DIMENSION) if module.proj_size else hidden
    deeper = constant(2 if module.bidirectional else 1) * projected
    shapes: dict[str, Shape] = {}
    for name in parameters_of(module):
        inner = into if "_l0" in name else deeper
        shapes[name] = (gates * hidden, inner if "_ih_" in name else projected)[: 1 if name.startswith("bias") else 2]
        if "_hr_" in name:
            shapes[name] = (projected, hidden)
    attributes: dict[AttributePath, Polynomial] = {("hidden_size",): hidden, ("input_size",): into}
    if module.proj_size:
        attributes["proj_size",] = projected
    layouts = {gates * hidden: Layout(((gates, hidden),))} if gates != constant(1) else {}
    return Declaration(shapes, attributes, layouts)


def _cell(module: nn.RNNCellBase, path: str, symbols: Symbols) -> Declaration:
    gates = constant(module.weight_hh.shape[0] // module.hidden_size)
    hidden = symbols.new(f"{path}.hidden_size", module.hidden_size, Kind.DIMENSION)
    into = symbols.new(f"{path}.input_size", module.input_size, Kind.DIMENSION)
    rows = gates * hidden
    shapes: dict[str, Shape] = {"weight_ih": (rows, into), "weight_hh": (rows, hidden)}
    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
    layouts = {rows: Layout(((gates, hidden),))} if rows != hidden else {}
    return Declaration(shapes, {("hidden_size",): hidden, ("input_size",): into}, layouts)


def _unflatten(module: nn.Unflatten, path: str, symbols: Symbols) -> Declaration | None:
    sizes = module.unflattened_size
    if not all(type(size) is int for size in sizes):
        return None
    names: list[tuple[AttributePath, int]] = [(("unflattened_size", i), int(size)) for i, size in enumerate(sizes)]
    return Declaration({}, {p: symbols.new(f"{path}.{p[0]}[{p[1]}]", size, Kind.ATTRIBUTE) for p, size in names})


def _transformer(module: nn.Transformer, path: str, symbols: Symbols) -> Declaration:
    width = symbols.new(f"{path}.d_model", module.d_model, Kind.ATTRIBUTE)
    heads = symbols.new(f"{path}.nhead", module.nhead, Kind.HEADS)
    return Declaration({}, {("d_model",): width, ("nhead",): heads})


_RULES: Mapping[type[nn.Module], Callable[[Any, str, Symbols], Declaration | None]] = {
    nn.Linear: _linear,
    nn.Bilinear: _bilinear,
    ConvNd: _convolution,
    NormBase: _normalisation,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding,
    nn.PReLU: _prelu,
    nn.MultiheadAttention: _attention,
    nn.RNNBase: _recurrent,
    nn.RNNCellBase: _cell,
    nn.Unflatten: _unflatten,
    nn.Transformer: _transformer,
}
