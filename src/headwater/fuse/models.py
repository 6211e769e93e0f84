"""Many copies of one model as one module, whose parameters and buffers are lane tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.choices import LaneChoice, insert_choices, refusal
from headwater.fuse.roster import Roster
from headwater.fuse.swaps import Swaps
from headwater.fuse.targets import narrow
from headwater.torch_private import is_lane_tensor, num_holders, stack_of


def fuse_models(models: Sequence[nn.Module], roster: Roster | None = None, swaps: Swaps | None = None) -> nn.Module:
    """Return the first model, whose own parameters and buffers now hold those of all models, one lane each.

    The models must have the same parameters and buffers, but for their values. Where they differ in a module or a
    function that holds none, each lane keeps its own.

    Raises:
        LanesPart: Two models differ in anything else, and the roster knows what made them differ.
        CannotFuseError: They do, and nothing is known of it; or something else sees their memory.
    """
    _require_alike(models, roster)
    insert_choices(models, roster)
    return _stack(models, swaps or Swaps())


def repeat_model(model: nn.Module, num_lanes: int, swaps: Swaps | None = None) -> nn.Module:
    """Return the model itself with `num_lanes` lanes that all start from its present weights.

    Whoever holds a parameter, a buffer or a part of it sees the lanes. What is a lane tensor already, because another
    prepared model has it too, stays as it is.

    Raises:
        CannotFuseError: Something else sees the memory of a parameter, and would miss what the lanes learn.
    """
    return _stack([model] * num_lanes, swaps or Swaps())


def narrow_model(model: nn.Module, places: Sequence[int], roster: Roster) -> None:
    """Keep the lanes at these places, as the roster does now; whoever holds a parameter of the model sees it so."""
    for tensor in _tensors(model).values():
        narrow(tensor, roster)
    for module in model.modules():
        if isinstance(module, LaneChoice):
            module.narrow(places)


def lane_state(model: nn.Module, place: int) -> dict[str, Tensor]:
    """Return the weights of one lane as an ordinary state dict that shares no memory with the stack."""
    return {name: stack[place].clone() for name, stack in stack_weights(model).items()}


def stack_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the stacks of all parameters and buffers of a state dict, by name."""
    return {name: stack_of(tensor).detach() for name, tensor in model.state_dict(keep_vars=True).items()}


def load_lane_states(model: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
    """Give each lane the weights of its state dict."""
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            stack_of(tensor).copy_(torch.stack([state[name] for state in states]))


def _stack(models: Sequence[nn.Module], swaps: Swaps) -> nn.Module:
    states = [_tensors(model) for model in models]
    named = {id(tensor): name for name, tensor in states[0].items() if not is_lane_tensor(tensor)}
    plain = [states[0][name] for name in named.values()]
    attributes = {id(tensor): tensor for tensor in _attributes(models[0]) if id(tensor) not in named}
    aliases = _find_aliases(plain, list(attributes.values()))
    for name, tensor in zip(named.values(), plain, strict=True):
        rows = [state[name].detach() for state in states]
        stack = torch.stack(rows).requires_grad_(tensor.requires_grad)
        for alias in aliases.get(id(tensor), ()):
            swaps.turn(alias, _same_part(alias, stack))
        swaps.turn(tensor, stack)
    return models[0]


def _attributes(model: nn.Module) -> Iterator[Tensor]:
    """Tensors that modules keep as ordinary attributes, such as the computed weight under a norm of weights."""
    for module in model.modules():
        yield from (value for value in vars(module).values() if isinstance(value, Tensor) and not is_lane_tensor(value))


def _find_aliases(tensors: Sequence[Tensor], attributes: Sequence[Tensor]) -> dict[int, list[Tensor]]:
    """Return the attributes that see the memory of a parameter, by its id.

    Raises:
        CannotFuseError: Others see it too, or see parts of it, and would miss what the lanes learn.
    """
    seers: dict[int, list[Tensor]] = {}
    for tensor in (*tensors, *attributes):
        seers.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    aliases: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        if _is_seen(tensor):
            others = [other for other in seers[tensor.untyped_storage().data_ptr()] if other is not tensor]
            aliases[id(tensor)] = [other for other in others if not isinstance(other, nn.Parameter)]
            if num_holders(tensor) > 1 + len(others) or not all(_can_follow(other, tensor) for other in others):
                raise CannotFuseError(
                    f"a parameter of shape {tuple(tensor.shape)} shares its memory with other tensors, such as a "
                    "state_dict() or a .data taken before trial.prepare_model; take clones of them, or take them after"
                )
    return aliases


def _is_seen(tensor: Tensor) -> bool:
    """Tell whether other tensors see the memory of a parameter: views, or those that a graph keeps.

    An array whose memory a parameter was given is not seen here: files of weights are loaded into such memory too.
    """
    is_trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad and tensor.numel() > 0
    return is_trained and num_holders(tensor) > 1


def _can_follow(other: Tensor, parameter: Tensor) -> bool:
    """Tell whether what another tensor sees can be kept: other numbers of the same memory, or a part of a stack."""
    if isinstance(other, nn.Parameter):
        return not _overlap(other, parameter)
    whole = parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()
    return whole and parameter.is_contiguous() and not other.requires_grad


def _overlap(one: Tensor, other: Tensor) -> bool:
    (begin, end), (other_begin, other_end) = _span(one), _span(other)
    return begin < other_end and other_begin < end


def _span(tensor: Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset()), int(tensor.storage_offset() + reach + 1)


def _same_part(alias: Tensor, stack: Tensor) -> Tensor:
    """Show of each lane what the alias shows of the parameter that the stack was made of."""
    shape, strides = (len(stack), *alias.shape), (stack[0].numel(), *alias.stride())
    return stack.detach().as_strided(shape, strides, alias.storage_offset())


def _require_alike(models: Sequence[nn.Module], roster: Roster | None) -> None:
    kinds = [_describe(model) for model in models]
    other = next((kind for kind in kinds if kind != kinds[0]), None)
    if other is None:
        return
    names = sorted(name for name in kinds[0].keys() | other.keys() if kinds[0].get(name) != other.get(name))
    pairs = [f"{name} ({kinds[0].get(name, 'none')} and {other.get(name, 'none')})" for name in names[:3]]
    reason = f"the models of two lanes differ in weights: {', '.join(pairs)}"
    raise refusal([str(kind) for kind in kinds], reason, roster)


def _describe(model: nn.Module) -> dict[str, str]:
    """Say of each parameter and buffer what the models of all lanes must have in common."""
    first_names: dict[int, str] = {}
    described = {}
    for name, tensor in _tensors(model).items():
        tied_to = first_names.setdefault(id(tensor), name)
        frozen = "" if tensor.requires_grad or not isinstance(tensor, nn.Parameter) else ", frozen"
        tied = "" if tied_to == name else f", tied to {tied_to}"
        described[name] = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}{frozen}{tied}"
    return described


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its full name, the tied ones under each of their names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)
