"""Answers of our own to torch calls on lane tensors, where torch's batching is missing, slow or means another thing."""

from __future__ import annotations

from typing import Any

from headwater.fuse.rules import (
    attention,
    autograd,
    cells,
    convolution,
    embedding,
    foreach,
    linear,
    losses,
    normalisation,
    pointwise,
    random,
    recurrent,
    scaling,
    shapes,
    values,
)

RULES: dict[Any, Any] = {
    **shapes.RULES,
    **pointwise.RULES,
    **values.RULES,
    **autograd.RULES,
    **linear.RULES,
    **convolution.RULES,
    **normalisation.RULES,
    **recurrent.RULES,
    **cells.RULES,
    **attention.RULES,
    **embedding.RULES,
    **losses.RULES,
    **random.RULES,
    **foreach.RULES,
    **scaling.RULES,
}
"""Torch function to rule. A rule gets the mode, the function and its arguments, and may answer NotImplemented."""

__all__ = ["RULES"]
