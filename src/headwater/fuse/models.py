"""Many copies of one model as one module, whose parameters and buffers are lane tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwater.fuse.choices import LaneChoice, insert_choices, refusal
from headwater.fuse.functorch import lanes_of, stack_of, swap
from headwater.fuse.roster import Roster
from headwater.fuse.targets import hand_over


def fuse_models(models: Sequence[nn.Module], roster: Roster | None = None) -> nn.Module:
    """Return the first model with its weights replaced by those of all models, one lane each.

    The models must have the same parameters and buffers, but for their values. Where they differ in a module or a
    function that holds none, each lane keeps its own.

    Raises:
        LanesPart: Two models differ in anything else, and the roster knows what made them differ.
        CannotFuseError: They do, and nothing is known of it.
    """
    _require_alike(models, roster)
    insert_choices(models, roster)
    return _stack(models)


def repeat_model(model: nn.Module, num_lanes: int) -> nn.Module:
    """Return the model with `num_lanes` lanes that all start from its present weights."""
    return _stack([model] * num_lanes)


def narrow_model(model: nn.Module, places: Sequence[int]) -> None:
    """Keep the lanes at these places; whoever holds a parameter of the model sees the narrowed one."""
    for tensor in {id(tensor): tensor for tensor in _tensors(model).values()}.values():
        stack = stack_of(tensor)
        kept = stack.detach()[list(places)].requires_grad_(stack.requires_grad)
        if stack.requires_grad:
            hand_over(stack, kept, list(places))
        narrowed = lanes_of(kept)
        narrowed.__dict__.update(tensor.__dict__)
        swap(tensor, narrowed)
    for module in model.modules():
        if isinstance(module, LaneChoice):
            module.narrow(places)


def lane_state(model: nn.Module, place: int) -> dict[str, Tensor]:
    """Return the weights of one lane as an ordinary state dict that shares no memory with the stack."""
    return {name: stack_of(tensor).detach()[place].clone() for name, tensor in model.state_dict(keep_vars=True).items()}


def load_lane_states(model: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
    """Give each lane the weights of its state dict."""
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            stack_of(tensor).copy_(torch.stack([state[name] for state in states]))


def _stack(models: Sequence[nn.Module]) -> nn.Module:
    states = [_tensors(model) for model in models]
    fused: dict[int, Tensor] = {}
    for name, tensor in states[0].items():
        if id(tensor) not in fused:
            fused[id(tensor)] = _fuse([state[name] for state in states])
    for owner, key, tensor in _places(models[0]):
        owner[key] = fused[id(tensor)]
    for module in models[0].modules():
        if isinstance(module, nn.RNNBase):
            module._flat_weights = [module._parameters[name] for name in module._flat_weights_names]
    return models[0]


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


def _fuse(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    stack = torch.stack([tensor.detach() for tensor in tensors]).requires_grad_(first.requires_grad)
    lane_tensor = lanes_of(stack)
    if isinstance(first, nn.Parameter):
        lane_tensor._is_param = True  # how torch itself marks a parameter of another class
    return lane_tensor


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its full name, the tied ones under each of their names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


def _places(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Every place where a module keeps a parameter or a buffer."""
    for module in model.modules():
        homes: list[dict[str, Any]] = [module._parameters, module._buffers]
        for home in homes:
            for key, tensor in list(home.items()):
                if tensor is not None:
                    yield home, key, tensor
