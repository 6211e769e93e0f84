"""Tensors that lanes have kept of different sides of an `if`: a change in place of one of them is noticed.

Alone, `best = loss` lets two variables hold one tensor, and a change of one shows in the other. Lanes of which only
some have assigned hold a new tensor instead. As long as nobody changes any of these in place there is no difference,
and once the memory of a tensor is gone nobody can.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from headwater.errors import CannotFuseError
from headwater.torch_private import DisableTorchFunction, is_lane_tensor, stack_of, version_of

MAX_WATCHED = 10_000
_REASON = "a value that lanes have kept of different sides of an `if` is changed in place; keep a clone() of it"


class _Watched:
    """One tensor, as it was when it was last looked at."""

    def __init__(self, tensor: Tensor) -> None:
        stack = _stack_of(tensor)
        self.reference = weakref.ref(tensor)
        self.memory = StorageWeakRef(stack.untyped_storage())
        self._version = version_of(stack)
        self._counter = stack.detach()
        self._counter.data = stack.new_empty(0)  # keeps the version counter of the tensor, and none of its memory
        self._kept = tensor if tensor.numel() == 1 else None
        """The tensor itself, where it is small, for code can write into it without a new version."""
        self._number = stack.detach().clone() if tensor.numel() == 1 else None

    @property
    def is_changed(self) -> bool:
        """Whether it was changed since."""
        if version_of(self._counter) != self._version:
            return True
        return self._kept is not None and not _are_equal(_stack_of(self._kept), self._number)

    def release(self) -> None:
        """Hold the tensor no longer."""
        self._kept = None


class Watches:
    """The tensors of one group that must not change in place."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []

    def add(self, tensor: Tensor) -> bool:
        """Watch a tensor; return whether there was room for one more."""
        with DisableTorchFunction():
            self._watched.append(_Watched(tensor))
        return len(self._watched) <= MAX_WATCHED

    def check(self, roster: Any) -> None:
        """Make the lanes train separately where a watched tensor was changed, and forget those that are gone.

        Raises:
            CannotFuseError: One was changed, or only other tensors that see its memory are left.
        """
        roster.memory.forget_expired()  # or it would hold memory of tensors that are gone
        watched, self._watched = self._watched, []
        with DisableTorchFunction():
            is_changed = any(each.is_changed for each in watched)
            for each in watched:
                each.release()
            left = [each.reference() for each in watched if not each.memory.expired()]
            if is_changed or None in left:
                roster.refuse(_REASON)
                raise CannotFuseError(_REASON)
            self._watched = [_Watched(tensor) for tensor in left if tensor is not None]

    def tensors(self) -> list[Tensor]:
        """Return the tensors that still exist."""
        found = (each.reference() for each in self._watched)
        return [tensor for tensor in found if tensor is not None]

    def begin_anew(self) -> None:
        """Watch the tensors as they are now, when lanes have left them."""
        with DisableTorchFunction():
            self._watched = [_Watched(tensor) for tensor in self.tensors()]


def _are_equal(one: Tensor, other: Tensor | None) -> bool:
    """Tell whether two tensors have the same numbers, NaN included."""
    assert other is not None
    nans = one.isnan()
    return torch.equal(nans, other.isnan()) and torch.equal(one[~nans], other[~nans])


def _stack_of(tensor: Tensor) -> Tensor:
    return stack_of(tensor) if is_lane_tensor(tensor) else tensor
