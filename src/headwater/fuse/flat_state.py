"""The state of an optimizer over lanes, laid out so that few kernels update many small parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwater.devices import send
from headwater.fuse.factors import Factor, Lanewise, lanewise

GRAD = "grad"
"""The name of the scratch buffer that holds the gradients side by side; it is no state."""


class Chunk:
    """Parameters of one type that have always been stepped together, with their state side by side in memory.

    Each buffer is flat: one tensor of shape [lanes, numbers of all parameters], with a view per parameter. `steps`
    counts the steps of each lane, `places` says which parameters of the group these are, and `token` is what others
    may remember the chunk by without keeping its memory.
    """

    def __init__(self, places: Sequence[int], shapes: Sequence[torch.Size], empty: Tensor, steps: Lanewise) -> None:
        self.places = tuple(places)
        self.steps = steps
        self.token = object()
        self._shapes = tuple(shapes)
        self._sizes = [shape.numel() for shape in shapes]
        self._empty = empty
        self._flats: dict[str, Tensor] = {}
        self._views: dict[str, list[Tensor]] = {}
        self._apart: Factor | None = None
        """How many steps each lane has made more than the one with the fewest."""

    @classmethod
    def of(cls, places: Sequence[int], stacks: Sequence[Tensor], num_lanes: int, steps: Lanewise = 0) -> Chunk:
        """Return a chunk without state for these stacks, which are of one type."""
        return cls(places, [stack.shape[1:] for stack in stacks], stacks[0].new_empty(num_lanes, 0), steps)

    @property
    def num_lanes(self) -> int:
        """How many lanes the chunk holds."""
        return len(self._empty)

    @property
    def device(self) -> torch.device:
        """Where the buffers are."""
        return self._empty.device

    def flat(self, name: str, fill: Factor | None = None) -> Tensor:
        """Return a buffer of all parameters; a new one holds zeros, or the number that is given for each lane."""
        if name not in self._flats:
            flat = self._empty.new_zeros(self.num_lanes, sum(self._sizes))
            self._flats[name] = flat if fill is None else flat.add_(fill.column(flat))
        return self._flats[name]

    def views(self, name: str) -> list[Tensor]:
        """Return a buffer as one view per parameter, in the shape of its stack."""
        views = self._views.get(name)
        if views is None:
            columns = torch.split(self.flat(name), self._sizes, dim=1)
            pairs = zip(columns, self._shapes, strict=True)
            views = [column.view(self.num_lanes, *shape) for column, shape in pairs]
            self._views[name] = views
        return views

    def gather(self, grads: Sequence[Tensor]) -> Tensor:
        """Copy the gradients side by side; the caller may use the buffer as it likes until the next step."""
        torch._foreach_copy_(self.views(GRAD), list(grads))
        return self.flat(GRAD)

    def split(self, places: Collection[int]) -> tuple[Chunk, Chunk]:
        """Return the parameters at these places, and the others, as chunks of their own."""
        inside = [index for index, place in enumerate(self.places) if place in places]
        outside = [index for index, place in enumerate(self.places) if place not in places]
        return self._pick(inside), self._pick(outside)

    def narrow(self, rows: Sequence[int]) -> None:
        """Keep the lanes in these rows."""
        index = send(torch.tensor(rows), self.device)
        self._flats = {name: flat.index_select(0, index) for name, flat in self._flats.items() if name != GRAD}
        self._views = {}
        self._empty = self._empty.new_empty(len(rows), 0)
        if isinstance(self.steps, tuple):
            self.steps = lanewise([self.steps[row] for row in rows])

    def copy_rows(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return what the buffers hold for the lanes in these rows."""
        return {name: flat[list(rows)] for name, flat in self._flats.items() if name != GRAD}

    def put_rows(self, rows: Sequence[int], kept: Mapping[str, Tensor], steps: Lanewise) -> None:
        """Give the lanes in these rows back what `copy_rows` has returned, and the steps that were counted then."""
        for name, values in kept.items():
            self._flats[name][list(rows)] = values
        now = [self.steps_of(row) for row in range(self.num_lanes)]
        for row in rows:
            now[row] = steps[row] if isinstance(steps, tuple) else steps
        self.steps = lanewise(now)

    def steps_of(self, row: int) -> float:
        """Return how many steps one lane has made."""
        return self.steps[row] if isinstance(self.steps, tuple) else self.steps

    def wide_steps(self) -> Any:
        """Return the steps, or a column of each lane's; how far the lanes are apart is on the device already."""
        if not isinstance(self.steps, tuple):
            return self.steps
        fewest = min(self.steps)
        apart = tuple(steps - fewest for steps in self.steps)
        if self._apart is None or self._apart.value != apart:
            self._apart = Factor(apart)
        return self._apart.wide(self.device) + fewest

    def _pick(self, indices: Sequence[int]) -> Chunk:
        shapes = [self._shapes[index] for index in indices]
        picked = Chunk([self.places[index] for index in indices], shapes, self._empty, self.steps)
        for name in self._flats.keys() - {GRAD}:
            views = self.views(name)
            torch._foreach_copy_(picked.views(name), [views[index] for index in indices])
        return picked
