"""How a surrogate and its target start, and how a trained target becomes an ordinary model again.

A surrogate holds blocks of the target's own initial weights, so its weights are spread as the target's are. The rules
want the spread of a hidden matrix to fall as 1/√fan-in; inputs and vectors are alike in all widths, and readouts zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotScaleError
from headwater.scale.parametrization import forward_factors
from headwater.scale.roles import Ratio, Role, readouts_of


@dataclass(frozen=True, slots=True)
class InputFactor:
    """A forward pre-hook that multiplies the first input of its module; an object, so that copies keep it."""

    factor: float

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Return the inputs with the first one multiplied."""
        if args:
            return (args[0] * self.factor, *args[1:]), kwargs
        first = next(iter(kwargs))
        return args, {**kwargs, first: kwargs[first] * self.factor}


def start_surrogate(surrogate: nn.Module, ratios: Mapping[str, Ratio], *, is_zero: bool = True) -> None:
    """Spread the weights of a surrogate, which are blocks of its target's, as the rules want it.

    Args:
        surrogate: The model at the width of the base, filled with blocks of the target's weights.
        ratios: Those of the target to the surrogate.
        is_zero: Whether readouts start from zero; else see `spread_readouts`.

    Raises:
        CannotScaleError: A hidden matrix does not start at random around zero, so no rule says how it goes with width.
    """
    with torch.no_grad():
        for name, parameter in surrogate.named_parameters():
            if ratios[name].role is Role.HIDDEN:
                _require_centred(name, parameter)
                parameter.mul_(ratios[name].m_in ** 0.5)
    if is_zero:
        zero_readouts(surrogate, ratios)


def start_target(target: nn.Module, ratios: Mapping[str, Ratio], *, is_zero: bool = True) -> None:
    """Make a target, whose own initial weights stay, start and compute as the rules want it."""
    if is_zero:
        zero_readouts(target, ratios)
    set_forward_factors(target, forward_factors(target, ratios))


def zero_readouts(model: nn.Module, ratios: Mapping[str, Ratio]) -> None:
    """Let every readout start from zero, with the bias of its layer; those that share an embedding's weight stay."""
    with torch.no_grad():
        for name, module, key in readouts_of(model, ratios):
            module.get_parameter(key).zero_()
            bias = module._parameters.get("bias")
            if bias is not None and ratios[name].forward != 1:
                bias.zero_()


def spread_readouts(model: nn.Module, ratios: Mapping[str, Ratio], m_in: Mapping[str, float]) -> None:
    """Let readouts start as wide as in the base, whatever the width of the model, instead of from zero.

    Args:
        model: A model with weights, or blocks of weights, as they are drawn at the width of the target.
        ratios: Those that tell which parameters read out.
        m_in: How much larger than in the base the fan-in of each is in the target.
    """
    with torch.no_grad():
        for name, module, key in readouts_of(model, ratios):
            module.get_parameter(key).mul_(m_in[name] ** 0.5)


def set_forward_factors(model: nn.Module, factors: Mapping[str, float]) -> None:
    """Multiply the first input of each named module by its factor, in place of the factors it had before."""
    for module in model.modules():
        _drop_factor(module)
    for name, factor in factors.items():
        if factor != 1:
            model.get_submodule(name).register_forward_pre_hook(InputFactor(factor), with_kwargs=True)


def factors_of(model: nn.Module) -> dict[str, float]:
    """Return what the first input of each module is multiplied by, by the module's name."""
    names = {module: name for name, module in model.named_modules()}
    return {names[module]: factor for module, factor in _factors(model)}


def fold_factors(model: nn.Module) -> None:
    """Move the factors into the weights, so that the model is an ordinary one and computes the same.

    A readout that shares its weight with an embedding gets a weight of its own: one tensor cannot be both.
    """
    shared = _shared_parameters(model)
    for module, factor in list(_factors(model)):
        weight = module.get_parameter("weight")
        folded = weight.detach() * factor
        if id(weight) in shared:
            module.register_parameter("weight", nn.Parameter(folded, requires_grad=weight.requires_grad))
        else:
            with torch.no_grad():
                weight.copy_(folded)
        _drop_factor(module)


def folded_state(state: Mapping[str, Tensor], factors: Mapping[str, float]) -> dict[str, Tensor]:
    """Return weights with which the plain model computes what a model with these weights and factors does.

    A readout that shares an embedding's weight has its own, multiplied one in the answer: see `load_folded`.
    """
    folded = dict(state)
    for name, factor in factors.items():
        key = f"{name}.weight".lstrip(".")
        folded[key] = folded[key] * factor
    return folded


def load_folded(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights into a plain model; a parameter that two modules share is parted where their weights differ."""
    homes: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        homes.setdefault(id(parameter), []).append(name)
    for first, *others in homes.values():
        for name in others:
            if not torch.equal(state[name], state[first]):
                path, _, key = name.rpartition(".")
                own = nn.Parameter(torch.empty_like(state[name]))
                model.get_submodule(path).register_parameter(key, own)
    model.load_state_dict(dict(state))


def _require_centred(name: str, weight: Tensor) -> None:
    """Refuse what is no sample around zero: a constant, an identity, a matrix with a mean."""
    values = weight.detach().flatten().float()
    is_pattern = weight.dim() == 2 and len(weight) > 4 and int(values.count_nonzero()) in range(1, len(weight) + 1)
    spread = float(values.std(correction=0))
    margin = max(0.5, 6 / values.numel() ** 0.5)
    if is_pattern or float(values.mean().abs()) > margin * spread:
        raise CannotScaleError(
            f"`{name}` does not start at random around zero (mean {float(values.mean()):.3g}, spread {spread:.3g}), "
            "and no rule says how such a matrix goes with width; draw it at random, or tune without a surrogate"
        )


def _factors(model: nn.Module) -> Iterator[tuple[nn.Module, float]]:
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, InputFactor):
                yield module, hook.factor


def _drop_factor(module: nn.Module) -> None:
    for place, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, InputFactor):
            del module._forward_pre_hooks[place]
            module._forward_pre_hooks_with_kwargs.pop(place, None)


def _shared_parameters(model: nn.Module) -> set[int]:
    """The identities of the parameters that more than one module holds."""
    seen: list[int] = [
        id(parameter)
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    ]
    return {identity for identity in seen if seen.count(identity) > 1}
