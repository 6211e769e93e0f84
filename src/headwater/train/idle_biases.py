"""Biases before a BatchNorm: their gradient is zero but for rounding, and adaptive optimizers make steps of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwater.torch_private import BatchNorm, ConvNd, DisableTorchFunction, is_lane_tensor, parameters_of, stack_of

NUM_ROUNDINGS = 64
"""A gradient is rounding noise where it is smaller than that of the weights by this many times the type's precision."""
_PROPORTIONAL = (torch.optim.SGD, torch.optim.ASGD, torch.optim.LBFGS)
"""Optimizers whose steps are as small as the gradients."""


class IdleBiases:
    """Looks at the first step of a run for biases that only rounding moves."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        """A sentence for the user that names these biases; nothing where there are none."""
        self._models: list[nn.Module] = []

    def add(self, model: nn.Module) -> None:
        """Look at the layers of a model."""
        self._models.append(model)

    def attach(self, optimizer: Any) -> None:
        """Look when this optimizer has made its first step."""
        classes = getattr(optimizer, "lane_classes", (type(optimizer),))
        adaptive = next((each for each in classes if not issubclass(each, _PROPORTIONAL)), None)
        if adaptive is None or not isinstance(optimizer, Optimizer):
            return

        models = self._models

        def look(*_: Any) -> None:
            if models:
                with DisableTorchFunction(), torch.no_grad():
                    names = [name for model in models for name in _find_idle(model)]
                self.notes = self.notes or _describe(names, adaptive.__name__)
                models.clear()  # a hook cannot be removed while hooks are called

        optimizer.register_step_post_hook(look)


def _find_idle(model: nn.Module) -> list[str]:
    """Return the names of layers whose biases have gradients of nothing but rounding noise."""
    known = {name: grads for name, layer in _find_normed(model) if len(grads := _gradients(layer)) == 2}
    if not known:
        return []
    sizes = torch.stack([torch.stack([grad.abs().max() for grad in grads]).double() for grads in known.values()])
    limits = [min(NUM_ROUNDINGS * torch.finfo(bias.dtype).eps, 1e-4) for bias, _ in known.values()]
    rows = zip(known, sizes.tolist(), limits, strict=True)  # one read from the device for all of them
    return [name for name, (bias, weight), limit in rows if 0 < bias < limit * weight]


def _find_normed(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield layers with a bias that a BatchNorm follows, in the order in which modules are registered."""
    leaves = [(name, module) for name, module in model.named_modules() if not any(module.children())]
    for (name, layer), (_, norm) in pairwise(leaves):
        is_layer = isinstance(layer, ConvNd | nn.Linear) and layer.bias is not None
        if is_layer and isinstance(norm, BatchNorm) and norm.training:
            yield name, layer


def _gradients(layer: nn.Module) -> list[Tensor]:
    """Return the gradients of the bias and the weight, as far as there are any."""
    tensors = [each for name in ("bias", "weight") if (each := parameters_of(layer).get(name)) is not None]
    grads = [(stack_of(each) if is_lane_tensor(each) else each).grad for each in tensors]
    return [grad for grad in grads if grad is not None]


def _describe(names: Sequence[str], optimizer: str) -> tuple[str, ...]:
    if not names:
        return ()
    shown = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    biases = f"the bias of {shown} has" if len(names) == 1 else f"the biases of {shown} have"
    return (
        f"{biases} no effect before BatchNorm, and {optimizer} turns the rounding noise of the gradient into steps: "
        "results of lanes, threads and machines may differ; use bias=False there",
    )
