"""Sizes of the outputs of a model's modules, noted while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def mean_size(output: Tensor) -> float:
    """Return how large a module's output is."""
    return float(output.abs().mean())


def note_sizes(
    model: nn.Module, seen: dict[str, list[float]], prefix: str = "", size_of: Callable[[Tensor], float] = mean_size
) -> list[RemovableHandle]:
    """Have a model note how large its modules' outputs are whenever it runs in training; return what ends that."""

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = _first_tensor(output) if torch.is_grad_enabled() else None
            if tensor is not None:
                seen.setdefault(name, []).append(size_of(tensor.detach()))

        return note

    modules = [(name, module) for name, module in model.named_modules() if _is_watched(module)]
    return [module.register_forward_hook(watch(f"{prefix}{name or 'model'}")) for name, module in modules]


def _is_watched(module: nn.Module) -> bool:
    """All but those that only pass on what their last part answers."""
    return not isinstance(module, nn.Sequential) or not len(module)


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.numel() else None
    items = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return next((tensor for item in items if (tensor := _first_tensor(item)) is not None), None)
