"""What ranks have computed of one answer, put together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from zlib import crc32

import torch
from torch import Tensor

from headwater.errors import CannotDivideError
from headwater.train.ranks import Part, RankGroup, as_bytes

_ALIGNMENT = 16
_HEADER = 32
"""Bytes: whether all went well, what the parts look like, how long they are, nothing."""


class Exchange:
    """Sends parts of answers to all ranks, in one message where their size is known from an earlier call."""

    def __init__(self, group: RankGroup) -> None:
        self.group = group
        self._sizes: dict[Hashable, int] = {}

    def join(
        self, key: Hashable, leaves: Sequence[Tensor] | None, dims: Sequence[int | None], part: Part
    ) -> list[Tensor]:
        """Return whole answers of all ranks' parts; `key` is the same for parts of the same size.

        `leaves` is None where this rank has failed, and a leaf without a dimension for rows is the same everywhere.

        Raises:
            CannotDivideError: A rank has failed, or their parts do not fit together.
        """
        if len(self.group) == 1 and leaves is not None:
            return [leaf.detach().clone() if dim is None else leaf for leaf, dim in zip(leaves, dims, strict=True)]
        sent = [] if leaves is None else [leaf for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
        row_dims = [dim for dim in dims if dim is not None]
        forms = [_form(leaf, dim, len(part)) for leaf, dim in zip(sent, row_dims, strict=False)]
        messages = self._send(key, leaves is not None, crc32(repr(forms).encode()), sent)
        parts = Part(0, part.total, part.total).split(len(self.group))
        pieces = [_unpack(message, forms, len(each)) for message, each in zip(messages, parts, strict=True)]
        joined = iter([torch.cat(leaf, dim) for leaf, dim in zip(zip(*pieces, strict=True), row_dims, strict=True)])
        assert leaves is not None
        return [leaf.detach().clone() if dim is None else next(joined) for leaf, dim in zip(leaves, dims, strict=True)]

    def _send(self, key: Hashable, is_well: bool, digest: int, leaves: Sequence[Tensor]) -> list[Tensor]:
        payload = _pack(leaves, self.group.device)
        size = self._sizes.get(key, 0)
        header = as_bytes(torch.tensor([is_well, digest, len(payload), 0], device=self.group.device))
        messages = self.group.gather(_pad(torch.cat([header, payload[:size]]), _HEADER + size))
        headers = [message[:_HEADER].view(torch.int64).tolist() for message in messages]
        if not all(one[0] and one[1] == headers[0][1] for one in headers):
            raise CannotDivideError("a rank cannot compute its rows, or its answer looks unlike that of others")
        longest = max(one[2] for one in headers)
        if longest <= size:
            return [message[_HEADER:] for message in messages]
        self._sizes[key] = longest
        return self.group.gather(_pad(payload, longest))


def join_rows(group: RankGroup, own: Tensor, total: int) -> Tensor:
    """Return all ranks' rows of a tensor."""
    parts = Part(0, total, total).split(len(group))
    longest = max(len(part) for part in parts)
    padded = torch.cat([own, own.new_zeros(longest - len(own), *own.shape[1:])])
    return torch.cat([rows[: len(part)] for rows, part in zip(group.gather(padded), parts, strict=True)])


def _form(leaf: Tensor, dim: int, num_rows: int) -> tuple[torch.dtype, int, list[float]]:
    """Describe a leaf by its sizes; along the rows, by the size of one."""
    sizes = [size / num_rows if place == dim else size for place, size in enumerate(leaf.shape)]
    return leaf.dtype, dim, sizes


def _pack(leaves: Sequence[Tensor], device: torch.device) -> Tensor:
    if not leaves:
        return torch.empty(0, dtype=torch.uint8, device=device)
    pieces = [as_bytes(leaf.detach().contiguous()) for leaf in leaves]
    return torch.cat([_pad(piece, _aligned(len(piece))) for piece in pieces])


def _unpack(message: Tensor, forms: Sequence[tuple[torch.dtype, int, list[float]]], num_rows: int) -> list[Tensor]:
    leaves, start = [], 0
    for dtype, dim, sizes in forms:
        shape = [round(size * num_rows) if place == dim else int(size) for place, size in enumerate(sizes)]
        num_bytes = prod(shape) * dtype.itemsize
        leaves.append(message[start : start + num_bytes].view(dtype).view(shape))
        start += _aligned(num_bytes)
    return leaves


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _pad(message: Tensor, size: int) -> Tensor:
    if len(message) >= size:
        return message
    return torch.cat([message, message.new_zeros(size - len(message))])
