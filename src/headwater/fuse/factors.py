"""Numbers that multiply stacks: one for all lanes, or one per lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import torch
from torch import Tensor

from headwater.devices import send, widest_float

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


@lru_cache(maxsize=64)
def mask_column(flags: bool | tuple[bool, ...], num_lanes: int, device: torch.device) -> Tensor:
    """Return booleans, one for all lanes or one per lane, as a column that selects rows of a flat buffer.

    A step asks for the same masks as the one before, so they are kept; nobody may write into them.
    """
    per_lane = flags if isinstance(flags, tuple) else (flags,) * num_lanes
    return send(torch.tensor(per_lane, dtype=torch.bool), device).unsqueeze(1)


class Factor:
    """A number per lane that is ready for arithmetic with stacks.

    Numbers per lane are kept in double precision and rounded to the type of the stack, as torch rounds a Python
    number; to 16 bits they are not rounded, since torch computes with Python numbers in 32 bits there. They are copied
    to a device once, and what follows from them is computed there: a step of an optimizer copies nothing.
    """

    __slots__ = ("_spreads", "_tensors", "_wide", "value")

    def __init__(self, value: Lanewise) -> None:
        self.value = value
        self._wide: dict[torch.device, Tensor] = {}
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

    @classmethod
    def of_column(cls, column: Tensor) -> Factor:
        """Return numbers that are known as a column on a device only."""
        factor = cls(())
        factor._wide[column.device] = column
        return factor

    def minus_over(self, divisor: Factor, device: torch.device) -> Factor:
        """Return the negative of this number divided by another, lane by lane."""
        own, other = self.wide(device), divisor.wide(device)
        quotient = own / -other
        return self.of_column(quotient) if isinstance(quotient, Tensor) else Factor(quotient)

    def wide(self, device: torch.device) -> float | Tensor:
        """Return the number, or a column of numbers in double precision."""
        if not isinstance(self.value, tuple):
            return self.value
        if device not in self._wide:
            self._wide[device] = send(torch.tensor(self.value, dtype=widest_float(device)).unsqueeze(1), device)
        return self._wide[device]

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
            wide = self.wide(like.device)
            assert isinstance(wide, Tensor)
            tensor = self._tensors[key] = wide.to(dtype).view(-1, *(1,) * (rank - 1))
        return tensor
