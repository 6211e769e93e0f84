"""Reading examples of a data set in blocks that draw their random numbers from a seed each, here or in workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch.utils.data import DataLoader, Dataset

from headwater.errors import CannotFuseError, LanesPart
from headwater.train.seeding import own_randomness, seed_everything

BLOCK = 8
"""How many examples draw their random numbers from one seed."""

Block: TypeAlias = tuple[int, list[int]]
"""A seed, and the indices of the examples that are loaded under it."""

_CARRIED = (
    "num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "in_order",
    "persistent_workers",
)  # fmt: skip


def fetch_blocks(dataset: Any, blocks: Sequence[Block]) -> list[Any]:  # Any: the user's examples
    """Load examples in this process, and leave its random numbers as they are."""
    with own_randomness(0):
        return [example for seed, indices in blocks for example in _fetch(dataset, seed, indices)]


def build_workers(loader: DataLoader[Any], feed: Sequence[Sequence[Block]]) -> DataLoader[Any]:
    """Return what loads examples in worker processes as the loader would; one item of the feed after the other."""
    options = {name: getattr(loader, name) for name in _CARRIED}
    return DataLoader(_Blocks(loader.dataset), batch_size=None, sampler=feed, collate_fn=_as_it_is, **options)


def _fetch(dataset: Any, seed: int, indices: list[int]) -> list[Any]:
    seed_everything(seed)
    if callable(getattr(dataset, "__getitems__", None)):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


class _Blocks(Dataset[Any]):
    """The data set by blocks instead of examples; to `worker_init_fn` it is the data set itself."""

    def __init__(self, dataset: Any) -> None:
        vars(self)["_dataset"] = dataset

    def __getitem__(self, blocks: Sequence[Block]) -> list[Any]:
        try:
            return [example for seed, indices in blocks for example in _fetch(self._dataset, seed, indices)]
        except LanesPart as signal:  # torch sends no such signal to the process that trains
            raise CannotFuseError(str(signal)) from signal

    def __getattr__(self, name: str) -> Any:
        if "_dataset" not in vars(self):  # while it is unpickled
            raise AttributeError(name)
        return getattr(vars(self)["_dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)


def _as_it_is(batch: Any) -> Any:
    return batch
