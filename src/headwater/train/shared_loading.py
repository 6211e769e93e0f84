"""Loading the examples of a batch by several ranks: each loads its part, and all of them get the whole batch.

What an example is depends on the seed, the pass and its place alone (`sources.py`), not on who loads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from torch import Tensor

from headwater.errors import CannotDivideError
from headwater.torch_private import tree_flatten, tree_unflatten
from headwater.train.exchange import Exchange
from headwater.train.ranks import Part, RankGroup

NUM_TRIED = 4
"""After so many batches it is decided whether sending examples takes less time than loading them."""

Read: TypeAlias = Callable[[int, int], Any]
"""Loads the examples between two places."""


class SharedLoading:
    """How the ranks of a trial read one data set."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._exchange = Exchange(group)
        self._is_divided = True
        self._num_read = 0
        self._loading_s = 0.0
        self._sending_s = 0.0

    def read(self, read: Read, start: int, stop: int) -> Any:
        """Return a whole batch; what cannot be sent as rows of tensors, every rank loads by itself."""
        if not self._is_divided or stop - start < len(self._group):
            return read(start, stop)
        part = Part(0, stop - start, stop - start).split(len(self._group))[self._group.rank]
        try:
            return self._read_part(read, start, part)
        except CannotDivideError:
            self._is_divided = False
            return read(start, stop)

    def _read_part(self, read: Read, start: int, part: Part) -> Any:
        begin = time.perf_counter()
        leaves, spec = _try(read, start + part.start, start + part.stop)
        is_rows = all(isinstance(leaf, Tensor) and leaf.shape[:1] == (len(part),) for leaf in leaves)
        loaded = time.perf_counter()
        own = leaves if leaves and is_rows else None
        rows = self._exchange.join(("batch", part.total), own, [0] * len(own or ()), part)
        if self._num_read:  # the first one opens files and learns sizes
            self._loading_s += loaded - begin
            self._sending_s += time.perf_counter() - loaded
        self._num_read += 1
        if self._num_read == NUM_TRIED:
            self._decide()
        return tree_unflatten(rows, spec)

    def _decide(self) -> None:
        """Go on only if sending costs less than loading what others load; no batch depends on it."""
        seconds = self._group.gather_numbers(self._loading_s, self._sending_s)
        saved_s = (len(self._group) - 1) * min(loading for loading, _ in seconds)
        self._is_divided = min(sending for _, sending in seconds) < saved_s


class RankAccess:
    """How a rank reads: data sets that it loads together with the others."""

    features = None

    def __init__(self, group: RankGroup) -> None:
        self._group = group

    def share(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """Read a source of its own, of which others load their part."""
        source = build()
        if source.loads_rows and len(self._group) > 1:
            source.sharing = SharedLoading(self._group)
        return source

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        """Go on."""

    def claim(self, model: Any) -> None:
        """Train it."""


def _try(read: Read, start: int, stop: int) -> tuple[list[Any], Any]:
    """Load some examples; nothing where that raises, for who loads all of them meets the error too."""
    try:
        return tree_flatten(read(start, stop))
    except Exception:  # of the user's data set
        return [], None
