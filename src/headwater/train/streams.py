"""The input stream: batches in an order that belongs to the study's seed, the same for every trial and every lane."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from headwater.errors import TrialError
from headwater.fuse.holding import require_shared
from headwater.fuse.roster import IS_LOADING
from headwater.torch_private import DisableTorchFunction, has_own_length
from headwater.train.frozen import Features
from headwater.train.seeding import mix_seed
from headwater.train.sources import Collate, Source, find_generators, move

_CARRIED = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
    "prefetch_factor", "persistent_workers", "in_order",
)  # fmt: skip
MAX_EXAMPLES = 4_000_000
"""A longer pass, such as an endless one, is not laid out beforehand."""


class DataAccess(Protocol):
    """How a run reads its data: alone, or together with others that read the same."""

    @property
    def features(self) -> Features | None:
        """What frozen models have answered for all of them."""

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Return the source that all runs with this key read."""

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        """Let others go first whose reading is behind, before this many examples are read on."""

    def claim(self, model: nn.Module) -> None:
        """Say that this run trains the model; no other may at the same time."""


class LoneAccess:
    """Reads with nobody else about."""

    features = None

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Read alone."""
        return build()

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        """Go on."""

    def claim(self, model: nn.Module) -> None:
        """Train it."""


class TimedAccess(LoneAccess):
    """Reads in short runs that are measured: what one has loaded is there for the next, and all is counted."""

    def __init__(self) -> None:
        self.num_read = 0
        """How many examples were read from sources that can be shared."""
        self._sources: dict[Hashable, Source] = {}

    @property
    def seconds(self) -> float:
        """How long loading took."""
        return sum(source.seconds for source in self._sources.values())

    @property
    def load_s(self) -> float:
        """How long it took for each example that was loaded, once; 0 where there was none."""
        return self.seconds / max(sum(source.num_loaded for source in self._sources.values()), 1)

    def share(self, key: Hashable, build: Callable[[], Source]) -> Source:
        """Keep what is loaded."""
        if key not in self._sources:
            self._sources[key] = build()
            self._sources[key].open(0, (self, None))  # a reader who stays at the start
        return self._sources[key]

    def await_turn(self, num_examples: int, is_loaded: Callable[[], bool]) -> None:
        """Count."""
        self.num_read += num_examples if self._sources else 0


class Stream:
    """A data loader whose n-th pass is a function of the seed and n alone, so that a resumed trial reads on rightly."""

    def __init__(
        self, loader: DataLoader[Any], source: Source | None, seed: int, device: torch.device, access: DataAccess
    ) -> None:
        self.loader = loader
        self.source = source
        """What it reads; None where only the loader itself can tell what comes next."""
        self.num_passes = 0
        """How often the data was gone through; a resumed trial sets it."""
        self.num_open = 0
        """How many iterators are in the middle of a pass."""
        self._seed = seed
        self._device = device
        self._access = access

    def __iter__(self) -> Iterator[Any]:
        number = self.num_passes
        self.num_passes += 1
        batches = self._iterate_loader(number) if self.source is None else self._iterate_source(self.source, number)
        return self._watch(batches)

    def _watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Know whether somebody is in the middle of a pass."""
        self.num_open += 1
        try:
            yield from batches
        finally:
            self.num_open -= 1

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def _iterate_source(self, source: Source, number: int) -> Iterator[Any]:
        with _loading():
            one = source.open(number, (self._access, self))
        size = self.loader.batch_size or 1
        total = len(one.order)
        for start in range(0, total - total % size if self.loader.drop_last else total, size):
            stop = min(start + size, total)
            self._access.await_turn(stop - start, partial(one.covers, start, stop))
            with _loading():
                batch = source.read(one, (self._access, self), start, stop)
            require_shared(batch)
            yield batch
        rest = total % size if self.loader.drop_last else 0
        self._access.await_turn(rest, lambda: True)

    def _iterate_loader(self, number: int) -> Iterator[Any]:
        for generator in find_generators(self.loader):
            generator.manual_seed(mix_seed(self._seed, "pass", number))
        with _loading():
            batches = iter(self.loader)
        while True:
            self._access.await_turn(self.loader.batch_size or 1, lambda: False)
            with _loading():
                try:
                    batch = move(next(batches), self._device)
                except StopIteration:
                    return
            require_shared(batch)
            yield batch


def open_stream(
    data: Any, seed: int, device: torch.device, access: DataAccess | None = None, /, **options: Any
) -> Stream:
    """Make a stream from a dataset and a loader's keywords, or from a loader.

    Raises:
        TrialError: `data` is neither, or a loader came with keywords.
    """
    if isinstance(data, DataLoader):
        if options:
            raise TrialError(
                f"prepare_data_loader got a DataLoader and also {sorted(options)}; set them in the DataLoader"
            )
        data, options = data.dataset, _options_of(data)
    elif not isinstance(data, Dataset) and not hasattr(data, "__getitem__"):
        raise TrialError(
            f"prepare_data_loader got a {type(data).__name__}; give it a Dataset with the keywords of a DataLoader, "
            "or a DataLoader"
        )
    require_shared(data, options)
    options = {**options, "generator": options.get("generator") or torch.Generator()}
    loader = DataLoader(data, **options)
    access = access or LoneAccess()
    return Stream(loader, _open_source(loader, options, seed, device, access), seed, device, access)


def _open_source(
    loader: DataLoader[Any], options: dict[str, Any], seed: int, device: torch.device, access: DataAccess
) -> Source | None:
    """Return what gives a loader's examples one by one; None where its batches are no stretches of one order."""
    sampler: Any = loader.sampler
    is_listed = not isinstance(loader.dataset, IterableDataset) and hasattr(sampler, "__len__")
    if not is_listed or loader.batch_size is None or len(sampler) > MAX_EXAMPLES:
        return None
    collate: Collate | None = options.get("collate_fn")
    order = options.get("sampler") or bool(options.get("shuffle"))
    key = (id(loader.dataset), id(order), id(collate), seed, loader.num_workers)  # the source holds all three
    return access.share(key, lambda: Source(loader, collate, seed, device))


def _options_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """Read off a loader what it was built with, but for the order, which becomes the study's."""
    options = {name: getattr(loader, name) for name in _CARRIED}
    if options["collate_fn"] is torch.utils.data.default_collate:
        options["collate_fn"] = None
    batch_sampler, sampler = loader.batch_sampler, loader.sampler
    if batch_sampler is not None and loader.batch_size is None:  # torch's sign that it was given
        return {**options, "batch_sampler": batch_sampler}
    options |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return options
    if type(sampler) is RandomSampler and not sampler.replacement and not has_own_length(sampler):
        return {**options, "shuffle": True}
    return {**options, "sampler": sampler}


@contextmanager
def _loading() -> Iterator[None]:
    """Read data for all lanes at once, outside of the lane mode. They may be used to train, whatever mode is on."""
    before = IS_LOADING.set(True)
    try:
        with DisableTorchFunction(), torch.inference_mode(False):
            yield
    finally:
        IS_LOADING.reset(before)
