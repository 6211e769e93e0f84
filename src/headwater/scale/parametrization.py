"""How learning rates and decays go with width, so that the best settings of a surrogate are those of its target.

The target is the base that all rules count from: it trains as plain PyTorch would train it. The surrogate carries the
multipliers. They follow from three sizes: a unit's activation and its change by one update stay as they are, and the
gradient of a unit goes as 1/width (Yang and Hu, 2021; as one rule for every shape, Yang, Simon and Bernstein, 2023).
For a parameter whose fans are m_in and m_out times those of the target:

=====================  ==================  ==================================================
optimizer              learning rate by    weight decay by
=====================  ==================  ==================================================
SGD                    m_out / m_in        its inverse, so that the shrinking per step stays
Adam family            1 / m_in            decoupled: its inverse; coupled: m_in / m_out
=====================  ==================  ==================================================

The Adam family divides a gradient by its own size, so that a step is as large as the rate: Adam, AdamW, NAdam, RAdam,
Adamax, RMSprop (a running mean of squares) and Adagrad (their sum, which lowers the rate over time alike in all
widths). Its `eps` is compared with gradients, so it goes as they do, by 1 / m_out (Dey et al., 2025). Momentum is a
mean over steps and no matter of width.

Coupled decay (an L2 penalty, part of the gradient) must keep its proportion to the gradient. Gradients go as 1 / m_out,
and what a weight has learnt as 1 / m_in, so the decay goes as m_in / m_out. With SGD that is the inverse of the rate;
under Adam's division it is the same rule, since it is about what goes into the division. The `mup` package multiplies
it by m_in instead, as if it were decoupled. No rule is exact here: the random part of a hidden matrix goes as the
square root of 1 / m_in. AdamW carries over better.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater.errors import CannotScaleError
from headwater.scale.roles import Ratio

Params: TypeAlias = nn.Module | Iterable[Any]
"""What an optimizer takes, and a module: parameters, `(name, parameter)` pairs, or groups of either."""

_GRADIENT_KINDS = frozenset({"SGD"})
_BETAS_KINDS = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax"})
_SIGN_KINDS = _BETAS_KINDS | {"Adagrad", "RMSprop"}
_KINDS = _GRADIENT_KINDS | _SIGN_KINDS
_SCALED = ("lr", "weight_decay", "eps")
_NO_OPTIONS: Mapping[str, Any] = {}

_RATES: Mapping[str, frozenset[str]] = {
    "OneCycleLR": frozenset({"max_lr"}),
    "CyclicLR": frozenset({"base_lr", "max_lr"}),
    "ReduceLROnPlateau": frozenset({"min_lr"}),
    "SWALR": frozenset({"swa_lr"}),
}
"""Arguments of schedulers that are learning rates themselves and may be given for each group."""
_LISTS = frozenset({"lr_lambda", "base_momentum", "max_momentum"})
"""Other arguments of schedulers that may be given for each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """A change of depth in a residual stack (Dey et al., 2025: CompleteP with alpha 1, depth-muP with 1/2)."""

    ratio: float
    """The number of blocks, in those of the base."""
    parameters: Collection[str]
    """The names of the parameters inside the blocks."""
    alpha: float = 1.0

    @property
    def branch_factor(self) -> float:
        """What the output of every residual branch is multiplied by before it is added."""
        return float(self.ratio**-self.alpha)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """What an optimizer's settings are multiplied by, for each parameter by its name."""

    lr: Mapping[str, float]
    decay: Mapping[str, float]
    eps: Mapping[str, float]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the optimizer takes for a setting that nobody gives."""

    @property
    def are_one(self) -> bool:
        """Whether nothing changes."""
        return all(factor == 1 for kind in (self.lr, self.decay, self.eps) for factor in kind.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitGroups:
    """What to give an optimizer in place of the user's parameters; unchanged parameters have no factors."""

    params: Params
    factors: tuple[float, ...] = ()
    """The learning-rate multiplier of each group."""
    origins: tuple[int, ...] = ()
    """The place of the user's group that each group is a part of."""


class _Scale(NamedTuple):
    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


def multipliers(
    kind: type[Optimizer] | str,
    ratios: Mapping[str, Ratio],
    *,
    options: Mapping[str, Any] = _NO_OPTIONS,
    decay_exponent: float = 1.0,
    depth: Depth | None = None,
) -> Multipliers:
    """Return what the settings of an optimizer are multiplied by in a model with these ratios to its base.

    Args:
        kind: A class of `torch.optim` or its name.
        ratios: Those of the model to its base, by parameter name.
        options: What the optimizer is given; `decoupled_weight_decay` decides, where AdamW does not, whether weights
            decay apart from the gradient.
        decay_exponent: The decay goes with the inverse of the rates to this power. 1 keeps the shrinking per step (Wang
            and Aitchison, 2024); 1/2 lets the decay of AdamW grow as the square root of width (Fan et al., 2025).
        depth: A change of the number of residual blocks.

    Raises:
        CannotScaleError: No rule is known for this optimizer.
    """
    name = _name_of(kind)
    rates = {key: _rate(name, key, ratio, depth) for key, ratio in ratios.items()}
    decayed = name if _is_decoupled(name, options) else "SGD"
    shrinking = {key: _rate(decayed, key, ratio, depth) for key, ratio in ratios.items()}
    return Multipliers(
        lr=rates,
        decay={key: 1.0 if rate == 1 else rate**-decay_exponent for key, rate in shrinking.items()},
        eps={key: 1.0 if name in _GRADIENT_KINDS else _gradient(key, ratio, depth) for key, ratio in ratios.items()},
        defaults=_defaults_of(name),
    )


def split_groups(
    params: Params, options: Mapping[str, Any], names: Mapping[str, Tensor], multipliers: Multipliers
) -> SplitGroups:
    """Split parameter groups by multiplier, with the settings of each group multiplied.

    A group's own settings go before the options, and these before the optimizer's defaults. Each of the user's groups
    becomes one or more neighbours; first the one whose learning rate stays, or else that with the largest, so that
    `param_groups[0]["lr"]` reads as before where it can. Parameters that `names` does not know stay as they are. If
    every multiplier is 1, the answer holds the very `params` that were given.

    Args:
        params: What the user gave for the optimizer.
        options: The optimizer's settings: numbers, or whatever can be multiplied by one.
        names: The parameters by the names that the multipliers have, as in `dict(model.named_parameters())`.
        multipliers: Those of the same optimizer.
    """
    if multipliers.are_one:
        return SplitGroups(params=params)
    scales = {id(parameter): _scale_of(multipliers, name) for name, parameter in names.items()}
    settings = {**multipliers.defaults, **options}
    groups: list[dict[str, Any]] = []
    factors: list[float] = []
    origins: list[int] = []
    for origin, group in enumerate(_as_groups(params)):
        for scale, members in _pieces(group["params"], scales):
            groups.append({**group, "params": members, **_scaled_settings({**settings, **group}, scale)})
            factors.append(scale.lr)
            origins.append(origin)
    return SplitGroups(params=groups, factors=tuple(factors), origins=tuple(origins))


def scale_schedule(kind: type[object] | str, options: Mapping[str, Any], groups: SplitGroups) -> dict[str, Any]:
    """Return a scheduler's arguments for split groups: absolute rates multiplied, lists for groups made as long.

    Torch takes one `eta_min` for all groups (`CosineAnnealingLR`, `CosineAnnealingWarmRestarts`), so it stays what it
    is; with 0, its default, the schedule is exact. Everything else that schedulers take is relative.
    """
    if not groups.factors:
        return dict(options)
    rates = _RATES.get(kind if isinstance(kind, str) else kind.__name__, frozenset())
    scaled = dict(options)
    for key in options.keys() & (rates | _LISTS):
        scaled[key] = _for_groups(options[key], groups, groups.factors if key in rates else None)
    return scaled


def _name_of(kind: type[Optimizer] | str) -> str:
    name = kind if isinstance(kind, str) else kind.__name__
    if name not in _KINDS or not (isinstance(kind, str) or getattr(torch.optim, name) is kind):
        raise CannotScaleError(
            f"it is not known how the learning rate of {name} goes with the size of a model; known are "
            f"{', '.join(sorted(_KINDS))} of torch.optim; use one of these, or tune without a surrogate"
        )
    return name


def _defaults_of(name: str) -> dict[str, Any]:
    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    return {key: parameters[key].default for key in _SCALED if key in parameters}


def _rate(kind: str, name: str, ratio: Ratio, depth: Depth | None) -> float:
    """The learning-rate multiplier: an update changes the output of its layer alike in every width and depth."""
    steps = 1.0 / ratio.m_in
    if depth is not None and name in depth.parameters:
        steps *= depth.ratio ** (depth.alpha - 1)
    return steps / _gradient(name, ratio, depth) if kind in _GRADIENT_KINDS else steps


def _gradient(name: str, ratio: Ratio, depth: Depth | None) -> float:
    """How large a gradient is, in that of the base."""
    branch = depth.branch_factor if depth is not None and name in depth.parameters else 1.0
    return branch / ratio.m_out


def _scale_of(multipliers: Multipliers, name: str) -> _Scale:
    return _Scale(multipliers.lr[name], multipliers.decay[name], multipliers.eps[name])


def _as_groups(params: Params) -> list[dict[str, Any]]:
    items = list(params.parameters() if isinstance(params, nn.Module) else params)
    return items if items and isinstance(items[0], dict) else [{"params": items}]


def _pieces(params: Any, scales: Mapping[int, _Scale]) -> list[tuple[_Scale, list[Any]]]:
    """The members of one group, apart by what their settings are multiplied by."""
    pieces: dict[_Scale, list[Any]] = {}
    for member in [params] if isinstance(params, Tensor) else params:
        parameter = member[1] if isinstance(member, tuple) else member
        pieces.setdefault(scales.get(id(parameter), _Scale()), []).append(member)
    if not pieces:
        return [(_Scale(), [])]
    first = max(pieces, key=lambda scale: (scale.lr == 1, scale.lr))
    return [(first, pieces.pop(first)), *pieces.items()]


def _scaled_settings(settings: Mapping[str, Any], scale: _Scale) -> dict[str, Any]:
    """The settings that change."""
    return {
        key: settings[key] * factor
        for key, factor in zip(_SCALED, scale, strict=True)
        if factor != 1 and key in settings
    }


def _for_groups(value: Any, groups: SplitGroups, factors: Sequence[float] | None) -> Any:
    """One value for each group in place of one for each of the user's groups, or of one for all."""
    if isinstance(value, list | tuple):
        if len(value) != groups.origins[-1] + 1:
            return value  # torch says what is wrong with it
        value = [value[origin] for origin in groups.origins]
    elif factors is not None:
        value = [value] * len(groups.origins)
    return value if factors is None else [rate * factor for rate, factor in zip(value, factors, strict=True)]


def _is_decoupled(name: str, options: Mapping[str, Any]) -> bool:
    return name == "AdamW" or bool(options.get("decoupled_weight_decay", False))
