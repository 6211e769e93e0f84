"""Many copies of one model as one module, whose parameters and buffers are lane tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import CannotFuseError
from headwater.fuse.functorch import lanes_of, stack_of, swap
from headwater.fuse.targets import hand_over


def fuse_models(models: Sequence[nn.Module]) -> nn.Module:
    """Return the first model with its weights replaced by those of all models, one lane each.

    The models must be alike in everything but the values of their parameters and buffers.

    Raises:
        CannotFuseError: Two models differ in the name or shape of a parameter.
    """
    _require_alike(models)
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


def repeat_model(model: nn.Module, num_lanes: int) -> nn.Module:
    """Return the model with `num_lanes` lanes that all start from its present weights."""
    return fuse_models([model] * num_lanes)


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


def lane_state(model: nn.Module, place: int) -> dict[str, Tensor]:
    """Return the weights of one lane as an ordinary state dict that shares no memory with the stack."""
    return {name: stack_of(tensor).detach()[place].clone() for name, tensor in model.state_dict(keep_vars=True).items()}


def load_lane_states(model: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
    """Give each lane the weights of its state dict."""
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            stack_of(tensor).copy_(torch.stack([state[name] for state in states]))


def _require_alike(models: Sequence[nn.Module]) -> None:
    shapes = [{name: tensor.shape for name, tensor in _tensors(model).items()} for model in models]
    for other in shapes[1:]:
        if other != shapes[0]:
            differing = sorted(
                name for name in shapes[0].keys() | other.keys() if shapes[0].get(name) != other.get(name)
            )
            raise CannotFuseError(f"the models of two lanes differ in shape at {', '.join(differing[:3])}")


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
