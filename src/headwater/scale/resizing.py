"""Builds the smaller model: the same modules, with the leading blocks of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from headwater.scale.places import copy_with, put, tensors_of
from headwater.scale.widths import Sizes
from headwater.torch_private import refresh_weights


def resize(model: nn.Module, sizes: Sizes) -> nn.Module:
    """Return a copy of the model with these sizes; the model itself is not touched.

    Parameters and buffers are the leading entries of the original ones in each dimension, of every part where a
    dimension is fused or joined of several. They are fresh leaves that share no memory with the original; tied ones
    stay tied.
    """
    tensors = tensors_of(model)
    replacements: dict[int, Any] = {}
    for name, tensor in tensors.items():
        if id(tensor) not in replacements:
            entries = [sizes.blocks.entries(size) for size in sizes.dimensions[name]]
            replacements[id(tensor)] = cut(tensor, entries)
    small = copy_with(model, replacements)
    for (path, attribute), value in sizes.attributes.items():
        put(small, path, attribute, value)
    for module in small.modules():
        if isinstance(module, nn.RNNBase):
            refresh_weights(module)
    return small


def cut(tensor: Tensor, entries: Sequence[Tensor]) -> Tensor:
    """Return a fresh leaf like a tensor, with these entries of each dimension."""
    block = tensor.detach()
    for dim, places in enumerate(entries):
        if len(places) != tensor.shape[dim]:
            block = block.index_select(dim, places.to(tensor.device))
    if block.data_ptr() == tensor.data_ptr():
        block = block.clone()
    block = block.contiguous()
    fresh = nn.Parameter(block, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else block
    vars(fresh).update(vars(tensor))
    return fresh
