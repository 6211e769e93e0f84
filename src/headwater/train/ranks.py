"""The processes that train one trial together: who they are, and what they tell each other.

Each rank is a process with a device of its own that calls the user's function with a Trial of one lane. All of them do
the same, from the same seeds, on the same *global* batches, so that every loss, metric, branch and optimizer step is
what one process alone would have. What they divide is the work inside: the calls of prepared models, by rows of the
batch (`shared_calls.py`), and the loading of examples (`shared_loading.py`). So nothing that the function reads is ever
a part of something: `loss.item()`, `len(y)`, sums, means and `trial.report` need no rule of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from headwater.errors import RanksLostError, StudyError
from headwater.torch_private import set_nccl_timeout

TIMEOUT_S = 600.0
"""So long a rank waits for the others; what they do between two meetings must not take longer."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which one this process is, of how many."""

    rank: int
    num_ranks: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise StudyError(f"rank {self.rank} of {self.num_ranks} cannot be; ranks count from 0 to num_ranks - 1")


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a global batch that are computed at one place: from `start` up to `stop`, of `total`."""

    start: int
    stop: int
    total: int

    def __len__(self) -> int:
        return self.stop - self.start

    def split(self, count: int) -> list[Part]:
        """Cut into nearly equal parts."""
        bounds = [self.start + len(self) * place // count for place in range(count + 1)]
        return [Part(start, stop, self.total) for start, stop in pairwise(bounds)]


class RankGroup:
    """A line between the ranks of one trial: nccl between CUDA devices, else gloo, through the memory of the host.

    All ranks must call the same methods in the same order. A rank that waits in vain raises RanksLostError.
    """

    def __init__(
        self,
        ranks: Ranks,
        meeting: str | Store = "",
        *,
        device: torch.device | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Meet the others at a URL (`tcp://host:port`, `file:///path`) or a store that all of them share."""
        self.ranks = ranks
        self.notes: list[str] = []
        """What the user should know about how this trial was divided."""
        self.device = device or torch.device("cpu")
        self._wire = self.device if _has_nccl(self.device) else torch.device("cpu")
        """Where tensors are that the line takes."""
        self.is_dividing = False
        """Whether this rank computes its own rows of something now, within which nothing is divided again."""
        self._line: Any = None  # torch has no common type for its groups
        if ranks.num_ranks > 1:
            with self._noticing_loss():
                self._line = _connect(ranks, meeting, self.device, timedelta(seconds=timeout_s))

    @property
    def rank(self) -> int:
        """Which one this process is."""
        return self.ranks.rank

    def __len__(self) -> int:
        return self.ranks.num_ranks

    def note(self, text: str) -> None:
        """Keep a sentence for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def dividing(self) -> Iterator[None]:
        """Compute rows that are this rank's own, or all of them for comparison."""
        was_dividing, self.is_dividing = self.is_dividing, True
        try:
            yield
        finally:
            self.is_dividing = was_dividing

    def close(self) -> None:
        """Leave; others that still wait for this rank raise RanksLostError."""
        line, self._line = self._line, None
        if line is not None:
            line.shutdown()

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of rank 0."""
        if len(self) == 1:
            return
        options = dist.BroadcastOptions()
        options.rootRank = 0
        for tensor in tensors:
            flat = tensor.detach().contiguous().to(self._wire)
            with self._meeting():
                self._line.broadcast([as_bytes(flat)], options).wait()
            if flat.data_ptr() != tensor.data_ptr():
                tensor.data.copy_(flat)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all ranks; one message for each type of number."""
        if len(self) == 1:
            return list(tensors)
        places: dict[torch.dtype, list[int]] = defaultdict(list)
        for place, tensor in enumerate(tensors):
            places[tensor.dtype].append(place)
        sums = list(tensors)
        for chosen in places.values():
            own = torch.cat([tensors[place].reshape(-1) for place in chosen])
            flat = own.to(self._wire)
            with self._meeting():
                self._line.allreduce([flat]).wait()
            pieces = flat.to(own.device).split([tensors[place].numel() for place in chosen])
            for place, piece in zip(chosen, pieces, strict=True):
                sums[place] = piece.view(tensors[place].shape)
        return sums

    def gather(self, own: Tensor) -> list[Tensor]:
        """Return the tensor of every rank, all of one shape and type."""
        if len(self) == 1:
            return [own]
        sent = own.detach().contiguous().to(self._wire)
        others = [torch.empty_like(sent) for _ in range(len(self))]
        with self._meeting():
            self._line.allgather([[as_bytes(other) for other in others]], [as_bytes(sent)]).wait()
        return [other.to(own.device) for other in others]

    def gather_numbers(self, *numbers: float) -> list[tuple[float, ...]]:
        """Return the numbers of every rank; whole ones are exact up to 2**53."""
        own = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        return [tuple(row.tolist()) for row in self.gather(own)]

    @contextmanager
    def _meeting(self) -> Iterator[None]:
        if self._line is None:
            raise RanksLostError(f"rank {self.rank} of {len(self)} has left the others already")
        with self._noticing_loss():
            yield

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RanksLostError(
                f"rank {self.rank} of {len(self)} has lost the others: one has ended, raised or gone another way "
                f"(their own errors say which): {error}"
            ) from error


def _connect(ranks: Ranks, meeting: str | Store, device: torch.device, timeout: timedelta) -> Any:
    store = meeting if isinstance(meeting, Store) else _meet(ranks, meeting, timeout)
    if _has_nccl(device):
        options = dist.ProcessGroupNCCL.Options()
        set_nccl_timeout(options, timeout)
        return dist.ProcessGroupNCCL(store, ranks.rank, ranks.num_ranks, options)
    return dist.ProcessGroupGloo(store, ranks.rank, ranks.num_ranks, timeout)


def _has_nccl(device: torch.device) -> bool:
    return device.type == "cuda"


def _meet(ranks: Ranks, url: str, timeout: timedelta) -> Store:
    if not url:
        raise StudyError(f"{ranks.num_ranks} ranks need a place to meet, as in 'tcp://127.0.0.1:29500'")
    store: Store = next(iter(rendezvous(url, ranks.rank, ranks.num_ranks, timeout=timeout)))[0]
    return store


def as_bytes(tensor: Tensor) -> Tensor:
    """See the memory of a contiguous tensor as bytes, so that every type of number can be sent."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return flat.reshape(-1).view(torch.uint8)
