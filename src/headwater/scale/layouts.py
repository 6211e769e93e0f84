"""How one dimension is made of others, in order: which of its entries stay when those shrink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from headwater.scale.polynomials import Polynomial

Part: TypeAlias = tuple[Polynomial, ...]
"""The factors of one part, the outermost first."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts that stand one after another; each is a product, as rows of rows."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Picks the leading entries of every part of a dimension.

    A dimension without a known layout keeps its leading entries.
    """

    old: Mapping[str, int]
    new: Mapping[str, int]
    layouts: Mapping[Polynomial, Layout]

    def entries(self, dimension: Polynomial) -> Tensor:
        """The places along a dimension that stay."""
        layout = self.layouts.get(dimension)
        if layout is None or dimension.at(self.old) == dimension.at(self.new):
            return torch.arange(dimension.at(self.new))
        places, start = [], 0
        for part in layout.parts:
            size = 1
            chosen = torch.zeros(1, dtype=torch.long)
            for factor in part:
                chosen = (chosen[:, None] * factor.at(self.old) + self.entries(factor)).flatten()
                size *= factor.at(self.old)
            places.append(chosen + start)
            start += size
        return torch.cat(places)
