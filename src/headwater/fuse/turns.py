"""One lane's turn at code that runs for each lane by itself, such as a data set that computes with what is tuned.

In its turn a lane sees its own plain values. What it leaves behind the next lane would find, and a trial alone would
not have; so the user's code, which asks tools wherever it writes, says into what (`Turn.write`). At the end of the turn
nobody else may hold that: neither the data set, nor another list, nor another array with the same memory.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from headwater.fuse.functorch import num_holders, num_uses
from headwater.fuse.users_code import is_users_module
from headwater.trials import Recipe

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class Turn:
    """What the code has written into in one lane's turn, and what of the lane's it has asked for."""

    def __init__(self, recipes: Mapping[str, Recipe] | None = None) -> None:
        self._before = dict(recipes or {})
        self._asked: dict[str, Recipe] = {}
        probe: list[Any] = []
        self._probe = id(probe)
        self._written: dict[int, Any] = {self._probe: probe}

    @property
    def recipes(self) -> dict[str, Recipe]:
        """What differs between lanes and was asked for, in this turn and then before."""
        return {**self._asked, **self._before}

    def ask(self, recipe: Recipe) -> None:
        """Note that something was asked for."""
        self._asked[recipe.label] = recipe

    def write(self, owner: Any) -> None:
        """Note that the code changes something."""
        self._written[id(owner)] = owner

    def find_shared(self, box: list[Any]) -> Any:
        """Return something that was written into and that others hold too; None where there is nothing.

        The box has what the code has returned, and nobody else may hold that now.
        """
        if len(self._written) == 1:
            return None
        found = self._find_shared(box)
        self._written.clear()
        return found

    def _find_shared(self, box: list[Any]) -> Any:
        holding = _Holding([box, *self._written.values()])
        num_own = holding.count(self._probe)
        for key in holding.find_suspects(self._written) - {id(box)}:
            num_expected = num_own - (key not in self._written) + holding.count_known(key)
            if holding.count(key) > num_expected or holding.shares_memory(key):
                return holding.nodes[key]
        return None


class _Holding:
    """Who holds what, as far as it can be reached from some values."""

    def __init__(self, values: list[Any]) -> None:
        self.nodes: dict[int, Any] = {}
        self._edges: Counter[int] = Counter()
        """How often each thing is held by others that were reached."""
        self._holders: dict[int, set[int]] = {}
        while values:
            holder = values.pop()
            if id(holder) in self.nodes:
                continue
            self.nodes[id(holder)] = holder
            for part in _parts(holder):
                self._holders.setdefault(id(part), set()).add(id(holder))
                self._edges[id(part)] += 1
                values.append(part)
        tensors = (node for node in self.nodes.values() if isinstance(node, Tensor))
        self._sharers = Counter(tensor.untyped_storage()._cdata for tensor in tensors)
        """How many of the tensors that were reached have each memory."""

    def count(self, key: int) -> int:
        """Count all who hold a thing, with what this call itself takes."""
        return sys.getrefcount(self.nodes[key])

    def count_known(self, key: int) -> int:
        """Count those of them that were reached; views of a tensor keep its Python object alive as one."""
        num_views = self._count_views(key)
        return self._edges[key] - num_views + (num_views > 0)

    def _count_views(self, key: int) -> int:
        return sum(isinstance(self.nodes[holder], Tensor) for holder in self._holders.get(key, ()))

    def find_suspects(self, written: dict[int, Any]) -> set[int]:
        """Return what was written into, whose memory that is, and what holds any of these."""
        waiting, suspects = [*written], set[int]()
        while waiting:
            key = waiting.pop()
            if key in suspects or key not in self.nodes:
                continue
            suspects.add(key)
            waiting += self._holders.get(key, ())
            if isinstance(self.nodes[key], Tensor | np.ndarray):
                waiting += map(id, _parts(self.nodes[key]))
        return suspects

    def shares_memory(self, key: int) -> bool:
        """Tell whether the memory of a tensor or an array is that of something else too."""
        thing = self.nodes[key]
        if isinstance(thing, np.ndarray):
            return not (thing.base is None or isinstance(thing.base, Tensor | np.ndarray))
        if not isinstance(thing, Tensor):
            return False
        if not thing.untyped_storage().resizable():
            return True  # NumPy, or a file, has it too
        num_known = self._sharers[thing.untyped_storage()._cdata]
        return num_holders(thing) > num_known or num_uses(thing) - 1 > self._count_views(key)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a value holds: items, attributes, or the array whose memory it sees."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    elif isinstance(value, Tensor):
        if value._base is not None:
            yield value._base
    elif isinstance(value, np.ndarray):
        if value.base is not None:
            yield value.base
    elif is_users_module(type(value).__module__) and not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).values()
