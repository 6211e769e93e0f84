"""Numbers that multiply stacks: one for all lanes, or one per lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, TypeAlias

import torch
from torch import Tensor

Lanewise: TypeAlias = float | tuple[float, ...]
"""A plain number where the lanes agree, else a tuple with a number per lane."""


def lanewise(values: Sequence[float]) -> Lanewise:
    """Return the number on which all lanes agree, else the numbers."""
    values = tuple(values)
    return values[0] if values.count(values[0]) == len(values) else values


def each(function: Callable[..., Any], *values: Lanewise) -> Any:
    """Apply a function of plain numbers lane by lane, or only once where all lanes agree."""
    if not any(isinstance(value, tuple) for value in values):
        return function(*values)
    columns = (value if isinstance(value, tuple) else repeat(value) for value in values)
    return tuple(map(function, *columns))


def mask_column(flags: Any, num_lanes: int, device: torch.device) -> Tensor:
    """Return booleans, one for all lanes or one per lane, as a column that selects rows of a flat buffer."""
    per_lane = flags if isinstance(flags, tuple) else (flags,) * num_lanes
    return torch.tensor(per_lane, dtype=torch.bool, device=device).unsqueeze(1)


class Factor:
    """A number per lane that is ready for arithmetic with stacks.

    Numbers per lane are kept in double precision and rounded to the type of the stack, as torch rounds a Python
    number; to 16 bits they are not rounded, since torch computes with Python numbers in 32 bits there.
    """

    __slots__ = ("_spreads", "_tensors", "_wide", "value")

    def __init__(self, value: Lanewise) -> None:
        self.value = value
        self._wide: Tensor | None = None
        self._tensors: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}
        self._spreads: dict[object, list[Tensor]] = {}

    @property
    def is_zero(self) -> bool:
        """Whether the number is zero in every lane."""
        return not any(self.value) if isinstance(self.value, tuple) else not self.value

    @property
    def has_zero(self) -> bool:
        """Whether the number is zero in some lane."""
        return 0 in self.value if isinstance(self.value, tuple) else not self.value

    def minus_over(self, divisor: Lanewise) -> Factor:
        """Return the negative of this number divided by another, lane by lane."""
        if not isinstance(self.value, tuple) and not isinstance(divisor, tuple):
            return Factor(-(self.value / divisor))
        quotient = Factor(())  # known as a tensor only
        quotient._wide = self._wide_tensor() / -Factor(divisor)._wide_tensor()
        return quotient

    def column(self, flat: Tensor) -> Any:
        """Return the number, or a column that meets the rows of a flat buffer."""
        return self._tensor(flat, 2) if isinstance(self.value, tuple) else self.value

    def spread(self, stacks: Sequence[Tensor], owner: object) -> Any:
        """Return the number, or a list of tensors that meet the lanes of each stack, remembered under their owner."""
        if not isinstance(self.value, tuple):
            return self.value
        tensors = self._spreads.get(owner)
        if tensors is None:
            tensors = self._spreads[owner] = [self._tensor(stack, stack.dim()) for stack in stacks]
        return tensors

    def _tensor(self, like: Tensor, rank: int) -> Tensor:
        key = (like.dtype, like.device, rank)
        tensor = self._tensors.get(key)
        if tensor is None:
            dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
            tensor = self._wide_tensor().to(dtype=dtype, device=like.device).view(-1, *(1,) * (rank - 1))
            self._tensors[key] = tensor
        return tensor

    def _wide_tensor(self) -> Tensor:
        """Return a column of numbers, or a single one."""
        if self._wide is None:
            self._wide = torch.tensor(self.value, dtype=torch.float64)
            self._wide = self._wide.unsqueeze(1) if isinstance(self.value, tuple) else self._wide
        return self._wide
