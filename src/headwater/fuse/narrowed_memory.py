"""Memory of stacks whose lanes have left: tensors that shared it before share it afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from headwater.errors import CannotFuseError
from headwater.torch_private import address_of


class NarrowedMemory:
    """New memory for the lanes that stayed, by the memory that it replaces, as long as any tensor holds the latter.

    Code keeps several tensors of one memory: a weight and its `detach()`, a gradient, a buffer and a row of it, a state
    dict. Each is narrowed when it is touched again, and all of them come to lie in the same new memory, or one would
    miss the values that are written into another.
    """

    def __init__(self) -> None:
        self._heirs: dict[int, _Heir] = {}

    def keep(self, stack: Tensor, places: list[int]) -> tuple[Tensor, list[int]]:
        """Return the lanes of a stack at these places, without a gradient, and the places themselves.

        Where others have left its memory before, they are those that were kept then; more may have left since.

        Raises:
            CannotFuseError: Other tensors share the memory, and how lanes lie in it cannot be told.
        """
        self.forget_expired()
        with torch.enable_grad():  # a view that is made without gradients could not be written into with gradients
            plain = stack.detach()
            if stack.stride(0) == 0:  # the lanes have one value in common
                return plain[: len(places)], places
            if stack.numel() == 0:
                return plain[places], places
            storage, layout = stack.untyped_storage(), _find_layout(plain)
            heir = self._heirs.get(address_of(storage))
            if heir is None and layout is None:
                self._heirs[address_of(storage)] = _Heir(StorageWeakRef(storage), None, places)
                return plain[places], places
            if layout is None or (heir is not None and heir.memory is None):
                raise _untold(stack)
            if heir is None:
                memory = plain.as_strided(layout.shape, layout.strides, 0)[:, places]
                heir = self._heirs[address_of(storage)] = _Heir(StorageWeakRef(storage), memory, places)
            assert heir.memory is not None
            return layout.show(plain, heir.memory), heir.places

    def forget_expired(self) -> None:
        """Release new memory whose old memory no tensor holds any more."""
        self._heirs = {key: heir for key, heir in self._heirs.items() if not heir.of.expired()}


@dataclass(frozen=True, slots=True)
class _Heir:
    """The lanes that were kept of memory, and their places in it."""

    of: StorageWeakRef
    memory: Tensor | None
    """None where a copy was made for one tensor, because how lanes lie in the old memory cannot be told."""
    places: list[int]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the lanes of a stack lie in memory: as the middle one of three dimensions, which count all of it."""

    shape: tuple[int, int, int]
    offset: tuple[int, int]
    """Where the stack begins, in blocks of all lanes and within a lane."""

    @property
    def strides(self) -> tuple[int, int, int]:
        """How far apart blocks, lanes and numbers are."""
        _, num_lanes, size = self.shape
        return num_lanes * size, size, 1

    def show(self, stack: Tensor, heir: Tensor) -> Tensor:
        """Return of an heir the part that the stack is of the memory it is from."""
        typed = heir if heir.dtype == stack.dtype else heir.view(stack.dtype)
        num_blocks, num_lanes, size = typed.shape
        if (num_blocks, size) != (self.shape[0], self.shape[2]):
            raise _untold(stack)
        block, (num_before, within) = self.strides[0], self.offset
        kept_block = num_lanes * size
        strides = [stride if stride < block else stride // block * kept_block for stride in stack.stride()[1:]]
        return typed.as_strided((num_lanes, *stack.shape[1:]), (size, *strides), num_before * kept_block + within)


def _find_layout(stack: Tensor) -> _Layout | None:
    """Return how the lanes of a stack lie in all of its memory; None where that cannot be told."""
    num_lanes, size = stack.shape[0], stack.stride(0)
    block = num_lanes * size
    num_blocks, rest = divmod(stack.untyped_storage().nbytes(), block * stack.element_size())
    num_before, within = divmod(int(stack.storage_offset()), block)
    spans = [(length, stride) for length, stride in zip(stack.shape[1:], stack.stride()[1:], strict=True) if length > 1]
    inner = within + sum((length - 1) * stride for length, stride in spans if stride < size)
    is_outer = all(stride % block == 0 for _, stride in spans if stride >= size)
    if rest or inner >= size or not is_outer or stack.is_conj() or stack.is_neg():
        return None
    return _Layout((num_blocks, num_lanes, size), (num_before, within))


def _untold(stack: Tensor) -> CannotFuseError:
    return CannotFuseError(
        f"lanes have left, and a tensor of shape {tuple(stack.shape[1:])} shares its memory with others in a way that "
        "cannot be kept; keep a clone() of it"
    )
