"""Models that are used and not trained: computed once for all lanes, and in a pack once for all units that have it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

NUM_KEPT = 8
"""So many answers are kept, for as many stretches of the data."""


class Features:
    """What frozen models answered for stretches of the data that several units read."""

    def __init__(self) -> None:
        self.num_computed = 0
        """How many examples were computed."""
        self._answers: OrderedDict[tuple[int, int], tuple[Tensor, int, Any]] = OrderedDict()

    def compute(self, module: nn.Module, x: Tensor) -> Any:
        """Return the module's answer for rows of a stretch, having computed the whole stretch once."""
        stretch = x._base
        if stretch is None or not _are_rows(x, stretch):
            self.num_computed += len(x)
            return module(x)
        key = (id(module), id(stretch))
        found = self._answers.get(key)
        if found is None or found[0] is not stretch or found[1] != stretch._version:
            found = self._answers[key] = (stretch, stretch._version, module(stretch))
            self.num_computed += len(stretch)
            while len(self._answers) > NUM_KEPT:
                self._answers.popitem(last=False)
        answer = found[2]
        if not isinstance(answer, Tensor) or len(answer) != len(stretch):
            return module(x)
        start = (x.storage_offset() - stretch.storage_offset()) // stretch.stride(0)
        return answer[start : start + len(x)]


class Frozen(nn.Module):
    """A model that gives features and learns nothing."""

    def __init__(self, module: nn.Module, features: Features | None) -> None:
        super().__init__()
        self._module = [module]  # in a list, for it is the user's and has no place in state dicts
        self._features = features

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer as the model does in evaluation."""
        (module,) = self._module
        with torch.no_grad():
            if self._features is None or kwargs or len(args) != 1 or type(args[0]) is not Tensor:
                return module(*args, **kwargs)
            return self._features.compute(module, args[0])


def _are_rows(x: Tensor, stretch: Tensor) -> bool:
    return (
        x.dim() > 0 and x.stride() == stretch.stride() and x.shape[1:] == stretch.shape[1:] and len(x) <= len(stretch)
    )
