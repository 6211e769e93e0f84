"""What each parameter is to a model's width: the dimensions that differ from the target's are those that shrink."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from torch import nn

from headwater.errors import CannotScaleError
from headwater.torch_private import ConvNd, ConvTransposeNd, NormBase, parameters_of

_NORMS = (NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_NO_ROLES: Mapping[str, Role] = {}


class Role(Enum):
    """How a parameter's size goes with width; the rules of a parametrization are by role."""

    INPUT = "input"
    """Only its fan-out goes with width: what reads the data, and tables that are looked up."""
    HIDDEN = "hidden"
    """Both fans do: matrices and full convolutions between layers."""
    READOUT = "readout"
    """Only its fan-in does: what writes the answer."""
    VECTOR = "vector"
    """One number for each unit: biases, gains, depthwise convolutions, tables of positions."""
    FIXED = "fixed"
    """Of the same shape in every width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A parameter's fans, in those that it has in the base: below 1 in a surrogate, whose base is the target."""

    role: Role
    m_in: float = 1.0
    m_out: float = 1.0


@dataclass(frozen=True, slots=True)
class _Fans:
    """Which dimensions of a layer's weight are which."""

    outs: tuple[int, ...]
    ins: tuple[int, ...]


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter, a shared one under its first name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def find_ratios(
    model: nn.Module, base_shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Role] = _NO_ROLES
) -> dict[str, Ratio]:
    """Compare a model with the shapes of its base; the answer is by parameter, a shared one under its first name.

    Layers of PyTorch and those that look like them (`in_features` and `out_features`, the `Conv1D` of Hugging Face) say
    themselves which dimension is the fan-in. A parameter that a module of another kind holds is one number per unit if
    one of its dimensions differs, and `[..., out, ..., in]` if two do. What cannot be told from the shape, `[width, n]`
    in a module of unknown kind, is refused unless `roles` settles it.

    Args:
        model: The model, of any width.
        base_shapes: Those of the same model at the width that the rules count from (`shapes_of`).
        roles: Roles to take as given, by parameter name.

    Raises:
        CannotScaleError: The models differ in more than widths, or a parameter's role cannot be told.
    """
    _require_same_names(model, base_shapes)
    uses = _uses_of(model)
    ratios = {}
    for name, parameter in model.named_parameters():
        growth = _growth(name, parameter.shape, base_shapes[name])
        if name in roles and any(ratio != 1 for ratio in growth):
            ratios[name] = _settled(roles[name], growth)
        else:
            ratios[name] = _joined(name, [_ratio(name, *use, growth) for use in uses[id(parameter)]])
    return ratios


def _require_same_names(model: nn.Module, base_shapes: Mapping[str, Sequence[int]]) -> None:
    names = shapes_of(model).keys()
    aliases = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    buffers = [name for name, _ in model.named_buffers(remove_duplicate=False)]
    differing = sorted((names - base_shapes.keys()) | (base_shapes.keys() - {*aliases, *buffers}))
    if differing:
        raise CannotScaleError(
            f"the model and its base must have the same parameters, but only one of them has {', '.join(differing[:3])}"
            f"{' and others' if len(differing) > 3 else ''}; change widths alone, not the number of layers"
        )


def _uses_of(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every module that holds a parameter, and under which key, by the parameter's identity."""
    uses: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for key, parameter in parameters_of(module).items():
            if parameter is not None:
                uses.setdefault(id(parameter), []).append((module, key))
    return uses


def _growth(name: str, shape: Sequence[int], base_shape: Sequence[int]) -> tuple[float, ...]:
    """Each dimension, in that of the base."""
    if len(shape) != len(base_shape):
        raise CannotScaleError(
            f"`{name}` has {len(shape)} dimensions and {len(base_shape)} in the base; change widths alone"
        )
    growth = tuple(1.0 if now == base else now / base for now, base in zip(shape, base_shape, strict=True))
    num_growing = sum(ratio != 1 for ratio in growth)
    if num_growing > 2:
        raise CannotScaleError(
            f"`{name}` goes from {list(base_shape)} to {list(shape)} in {num_growing} dimensions, and rules are known "
            "for two at most; keep one of these widths fixed, or tune without a surrogate"
        )
    return growth


def _settled(role: Role, growth: Sequence[float]) -> Ratio:
    """A parameter whose role someone has settled."""
    growing = [ratio for ratio in growth if ratio != 1]
    if role is Role.HIDDEN:
        return Ratio(role=role, m_in=growing[-1], m_out=math.prod(growing[:-1]))
    if role is Role.READOUT:
        return Ratio(role=role, m_in=math.prod(growing))
    return Ratio(role=role) if role is Role.FIXED else Ratio(role=role, m_out=math.prod(growing))


def _joined(name: str, ratios: Sequence[Ratio]) -> Ratio:
    """The one ratio of a parameter that several modules may hold."""
    inputs = [ratio for ratio in ratios if ratio.role in (Role.INPUT, Role.VECTOR)]
    readouts = [ratio for ratio in ratios if ratio.role is Role.READOUT]
    if inputs and readouts and _widths(inputs) == _widths(readouts):
        return Ratio(role=Role.INPUT, m_out=inputs[0].m_out)
    if len(set(ratios)) > 1:
        found = sorted({ratio.role.value for ratio in ratios})
        raise CannotScaleError(
            f"`{name}` is shared by layers to which it is different things ({', '.join(found)}), so no one learning "
            "rate suits it; give each layer its own parameter, or tune without a surrogate"
        )
    return ratios[0]


def _widths(ratios: Sequence[Ratio]) -> set[float]:
    return {ratio.m_in * ratio.m_out for ratio in ratios}


def _ratio(name: str, module: nn.Module, key: str, growth: Sequence[float]) -> Ratio:
    """The ratio of a parameter as one module uses it."""
    if all(ratio == 1 for ratio in growth):
        return Ratio(role=Role.FIXED)
    shape = parameters_of(module)[key].shape  # type: ignore[union-attr]  # the caller found the parameter there
    if len(growth) == 1 or isinstance(module, _NORMS) or _is_depthwise(module, shape, growth):
        return Ratio(role=Role.VECTOR, m_out=math.prod(growth))
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and growth[0] != 1:
        raise CannotScaleError(
            f"`{name}` differs in the number of its rows, which is no width; keep the size of the vocabulary, or the "
            "number of positions, fixed"
        )
    fans = _fans_of(module, key, shape)
    return _by_fans(name, fans, growth) if fans.outs else _by_place(name, shape, growth)


def _is_depthwise(module: nn.Module, shape: Sequence[int], growth: Sequence[float]) -> bool:
    """Each unit has a kernel of its own, or a group of units of fixed size has."""
    if isinstance(module, ConvTransposeNd):
        return module.groups > 1 and growth[1] == 1
    return isinstance(module, ConvNd) and module.groups > 1 and shape[1] == growth[1] == 1


def _fans_of(module: nn.Module, key: str, shape: Sequence[int]) -> _Fans:
    """The fans of a weight as its module lays them out; none if the module is of unknown kind."""
    kernel = tuple(range(2, len(shape)))
    if isinstance(module, ConvTransposeNd) and key == "weight":
        return _Fans((1,), (0, *kernel))
    if isinstance(module, nn.Linear | ConvNd) and key == "weight":
        return _Fans((0,), (1, *kernel))
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and key == "weight":
        return _Fans((1,), (0,))
    if isinstance(module, nn.Bilinear) and key == "weight":
        return _Fans((0,), (1, 2))
    if isinstance(module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention) and len(shape) == 2:
        return _Fans((0,), (1,))
    return _fans_by_features(module, key, shape)


def _fans_by_features(module: nn.Module, key: str, shape: Sequence[int]) -> _Fans:
    """The fans of a weight whose module, though none of PyTorch's, says how many inputs and outputs it has."""
    if key == "weight" and len(shape) == 2:
        if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
            return _Fans((1,), (0,))
        outs, ins = (getattr(module, word, None) for word in ("out_features", "in_features"))
        if tuple(shape) == (outs, ins):
            return _Fans((0,), (1,))
        if tuple(shape) == (ins, outs):
            return _Fans((1,), (0,))
    return _Fans((), ())


def _by_fans(name: str, fans: _Fans, growth: Sequence[float]) -> Ratio:
    m_in = math.prod(growth[dim] for dim in fans.ins)
    m_out = math.prod(growth[dim] for dim in fans.outs)
    if sum(growth[dim] != 1 for dim in fans.ins) > 1:
        raise CannotScaleError(
            f"two dimensions of the fan-in of `{name}` go together, and rules are known for one; keep one of these "
            "widths fixed, or tune without a surrogate"
        )
    if m_in == 1:
        return Ratio(role=Role.INPUT, m_out=m_out)
    if m_out == 1:
        return Ratio(role=Role.READOUT, m_in=m_in)
    return Ratio(role=Role.HIDDEN, m_in=m_in, m_out=m_out)


def _by_place(name: str, shape: Sequence[int], growth: Sequence[float]) -> Ratio:
    """The ratio of a parameter in a module of unknown kind."""
    growing = [dim for dim, ratio in enumerate(growth) if ratio != 1]
    if len(growing) == 2:
        return Ratio(role=Role.HIDDEN, m_in=growth[growing[1]], m_out=growth[growing[0]])
    if len(shape) == 2 and growing == [0] and shape[1] > 1:
        raise CannotScaleError(
            f"`{name}` has the shape {list(shape)} in a module of unknown kind, so that it may be an input weight or a "
            f"readout; use a layer such as nn.Linear, or say which: hw.Surrogate(roles={{{name!r}: 'readout'}}) or "
            "'vector'"
        )
    return Ratio(role=Role.VECTOR, m_out=growth[growing[0]])
