"""Examples in the order of a pass over a data set, loaded a stretch at a time, so that several readers can share them.

What is read depends on the seed, the pass and the place of an example alone, never on who reads it or with which batch
size: the order of a pass is drawn at its start, and random numbers that a data set draws while it loads (to crop or
flip an image) are seeded afresh for every `BLOCK` examples.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from headwater.devices import find_accelerator, send
from headwater.errors import CannotFuseError
from headwater.fuse.roster import ROSTER
from headwater.fuse.strategies import read_clock
from headwater.plan import NUM_AHEAD
from headwater.torch_private import tree_leaves, tree_map
from headwater.train.fetching import BLOCK, build_workers, fetch_blocks
from headwater.train.frozen import copy_rows
from headwater.train.seeding import mix_seed, own_randomness
from headwater.train.shared_loading import SharedLoading

AHEAD_BYTES = 8 * 2**20
NUM_KEPT = 64
"""So many stretches stay loaded for readers that are behind; who comes later loads again."""

Collate: TypeAlias = Callable[[list[Any]], Any]
Reader: TypeAlias = tuple[object, object]
"""How a run reads, and the stream that it reads."""


@dataclass(slots=True)
class Stretch:
    """Examples that were loaded together: collated for all, or as they are where each batch must be collated anew."""

    start: int
    stop: int
    columns: Any = None  # a nest of tensors, one row per example
    examples: list[Any] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """What it takes in memory, as far as tensors tell."""
        leaves = tree_leaves([self.columns, self.examples])
        return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))


@dataclass(slots=True)
class Pass:
    """One pass over the data: its order, and what is loaded of it."""

    number: int
    order: Sequence[int]
    seed: int
    stretches: list[Stretch] = field(default_factory=list)
    workers: Iterator[list[Any]] | None = None
    num_fetched: int = 0
    """How far the workers have come."""

    def find(self, place: int) -> Stretch | None:
        """Return the loaded stretch that holds this place."""
        return next((stretch for stretch in self.stretches if stretch.start <= place < stretch.stop), None)

    def covers(self, start: int, stop: int) -> bool:
        """Tell whether all these places are loaded."""
        while start < stop and (stretch := self.find(start)) is not None:
            start = stretch.stop
        return start >= stop

    def bound(self, place: int) -> int:
        """Return the end of the block that ends at or after this place."""
        return min(-(-place // BLOCK) * BLOCK, len(self.order))

    def blocks(self, start: int, stop: int) -> list[tuple[int, list[int]]]:
        """Return a seed and indices for each block between these places."""
        firsts = range(start, stop, BLOCK)
        return [(mix_seed(self.seed, first), list(self.order[first : min(first + BLOCK, stop)])) for first in firsts]


class Source:
    """A data set that is read in passes, by one reader or by several that share what is loaded."""

    def __init__(self, loader: DataLoader[Any], collate: Collate | None, seed: int, device: torch.device) -> None:
        self.seconds = 0.0
        """How long loading took so far."""
        self.num_loaded = 0
        """How many examples were loaded so far."""
        self.awaits_readers: Callable[[], bool] = lambda: False
        """Whether others are still to come, who will want what has been read already."""
        self.after_loading: Callable[[], None] = lambda: None
        """Called after examples were loaded."""
        self.sharing: SharedLoading | None = None
        """How ranks share the loading; None where this process loads all it reads."""
        self._loader = loader
        self._collate = collate
        self._seed = seed
        self._device = device
        self._has_rows = collate is None
        """Whether a batch is nothing but rows of tensors, so that examples can be collated before they are cut."""
        self._readers: dict[Reader, tuple[int, int]] = {}
        self._passes: dict[int, Pass] = {}
        self._was_seen = False
        """Whether lanes have loaded something here."""
        self._workers: DataLoader[Any] | None = None
        self._feed: list[Any] = []

    def open(self, number: int, reader: Reader) -> Pass:
        """Begin a pass, or join others that read it."""
        self._readers[reader] = (number, 0)
        self._forget()
        if number not in self._passes:
            self._passes[number] = Pass(number, self._draw_order(number), mix_seed(self._seed, "pass", number))
        return self._passes[number]

    def leave(self, access: object) -> None:
        """Keep nothing any more for the run that reads so."""
        self._readers = {reader: place for reader, place in self._readers.items() if reader[0] is not access}
        self._forget()

    def read(self, one: Pass, reader: Reader, start: int, stop: int) -> Any:
        """Return a batch of the examples at these places, loading what is not there."""
        if self.sharing is not None:
            return self.sharing.read(partial(self._read, one, reader), start, stop)
        return self._read(one, reader, start, stop)

    @property
    def loads_rows(self) -> bool:
        """Whether examples are loaded one by one, here, and collated as rows: then others can load some of them."""
        is_plain = self._collate is None and not self._loader.num_workers
        return is_plain and type(self._loader.dataset) is not TensorDataset

    def _read(self, one: Pass, reader: Reader, start: int, stop: int) -> Any:
        begin = _read_host_clock()
        pieces, place = [], start
        while place < stop:
            stretch = one.find(place) or self._load(one, place, stop)
            pieces.append((stretch, place - stretch.start, min(stop, stretch.stop) - stretch.start))
            place = stretch.stop
        batch = self._join(one, pieces)
        self.seconds += _read_host_clock() - begin
        self._readers[reader] = (one.number, stop)
        self._forget()
        return batch

    def _draw_order(self, number: int) -> list[int]:
        """Draw the order of a pass as a loader of torch draws it; samplers without a generator get a seed too."""
        seed = mix_seed(self._seed, "pass", number)
        with own_randomness(seed):
            for generator in find_generators(self._loader):
                generator.manual_seed(seed)
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)  # torch seeds workers with it
            return list(self._loader.sampler)

    def _load(self, one: Pass, place: int, stop: int) -> Stretch:
        """Load from a place on, further than asked for if that can be done."""
        start = place // BLOCK * BLOCK
        ends = [
            min([one.bound(end), *(stretch.start for stretch in one.stretches if stretch.start > place)])
            for end in (stop + self._count_ahead(one), stop)
        ]
        stretch = self._load_safely(one, start, [*dict.fromkeys(ends), min(stop, len(one.order))])
        self.after_loading()
        self.num_loaded += stretch.stop - stretch.start
        one.stretches = sorted([*one.stretches[-NUM_KEPT:], stretch], key=lambda stretch: stretch.start)
        return stretch

    def _load_safely(self, one: Pass, start: int, stops: Sequence[int]) -> Stretch:
        """Load up to the first of these places for which nothing raises: nobody has asked for what comes later yet."""
        *others, last = stops
        for stop in others:
            try:
                return self._load_stretch(one, start, stop)
            except CannotFuseError:
                raise
            except Exception:  # of the user's data set; it raises again where the example is asked for
                continue
        return self._load_stretch(one, start, last)

    def _count_ahead(self, one: Pass) -> int:
        """Return how many examples to load beyond what is asked for: more make longer turns, few take little memory."""
        if len(self._readers) < 2 or not one.stretches:
            return 0
        last = one.stretches[-1]
        return min(NUM_AHEAD, AHEAD_BYTES * (last.stop - last.start) // max(1, last.num_bytes))

    def _load_stretch(self, one: Pass, start: int, stop: int) -> Stretch:
        dataset = self._loader.dataset
        if type(dataset) is TensorDataset and self._has_rows:
            rows = torch.tensor(one.order[start:stop])
            return Stretch(start, stop, self._move([tensor[rows] for tensor in dataset.tensors]))
        if self._loader.num_workers and start == one.num_fetched and self._may_ask_workers():
            return self._lay_out(start, self._fetch(one))
        examples = fetch_blocks(dataset, one.blocks(start, stop))
        if start == one.num_fetched:
            one.num_fetched += len(examples)  # the workers go on from here
        return self._lay_out(start, examples)

    def _may_ask_workers(self) -> bool:
        """Tell whether workers may load. The first examples are loaded here, where a use of lanes' values shows."""
        was_seen, self._was_seen = self._was_seen, True
        return was_seen or ROSTER.get() is None

    def _lay_out(self, start: int, examples: list[Any]) -> Stretch:
        """Make a stretch of examples."""
        stop = start + len(examples)
        columns = self._collate_rows(examples) if self._has_rows else None
        return Stretch(start, stop, examples=examples) if columns is None else Stretch(start, stop, self._move(columns))

    def _fetch(self, one: Pass) -> list[Any]:
        """Take what the worker processes have loaded next."""
        if one.workers is None:
            size = -(-(self._loader.batch_size or 1) // BLOCK) * BLOCK
            starts = range(one.num_fetched, len(one.order), size)
            one.workers = self._open_workers([one.blocks(at, min(at + size, len(one.order))) for at in starts])
        try:
            examples = next(one.workers)
        except Exception:
            one.num_fetched = -1  # they are out of step; what is left of the pass is loaded here
            raise
        one.num_fetched += len(examples)
        if one.num_fetched == len(one.order):
            next(one.workers, None)  # so that the workers end now, and not when they are collected
        return examples

    def _open_workers(self, feed: list[Any]) -> Iterator[list[Any]]:
        """Set workers to load a pass: those that persist, unless they still load another one."""
        with own_randomness(self._seed):  # torch draws a seed for the workers
            return self._set_to_work(feed)

    def _set_to_work(self, feed: list[Any]) -> Iterator[list[Any]]:
        are_busy = any(one.workers is not None and one.num_fetched < len(one.order) for one in self._passes.values())
        if not self._loader.persistent_workers or are_busy:
            return iter(build_workers(self._loader, feed))
        if self._workers is None:
            self._workers = build_workers(self._loader, self._feed)
        self._feed[:] = feed
        return iter(self._workers)

    def _collate_rows(self, examples: list[Any]) -> Any:
        """Collate examples into tensors with a row for each; None where batches must be collated one by one."""
        try:
            columns = default_collate(examples)
        except Exception:  # they differ in shape or kind; a batch that is no better raises again
            self._has_rows = False
            return None
        leaves = tree_leaves(columns)
        self._has_rows = all(isinstance(leaf, Tensor) and leaf.shape[:1] == (len(examples),) for leaf in leaves)
        return columns if self._has_rows else None

    def _join(self, one: Pass, pieces: Sequence[tuple[Stretch, int, int]]) -> Any:
        """Make a batch of rows of stretches, in memory of its own, which the code may write into."""
        if all(stretch.columns is not None for stretch, _, _ in pieces):
            (stretch, a, b), *others = pieces
            if not others:
                return tree_map(lambda leaf: copy_rows(leaf, a, b), stretch.columns)
            parts = [tree_map(lambda leaf, a=a, b=b: leaf[a:b], stretch.columns) for stretch, a, b in pieces]
            return tree_map(lambda *leaves: torch.cat(leaves), *parts)
        examples: list[Any] = []
        for stretch, a, b in pieces:
            examples += self._examples_of(one, stretch)[a:b]
        if self._collate is not None and (len(self._readers) > 1 or self.awaits_readers()):  # it may hand them out
            return self._move(self._collate(copy.deepcopy(examples)))
        return self._move((self._collate or default_collate)(examples))

    def _examples_of(self, one: Pass, stretch: Stretch) -> list[Any]:
        """Return the examples of a stretch; one that was collated before others could not be is loaded again."""
        if stretch.columns is not None and not stretch.examples:
            stretch.examples = fetch_blocks(self._loader.dataset, one.blocks(stretch.start, stretch.stop))
        return stretch.examples

    def _move(self, batch: Any) -> Any:
        return move(batch, self._device)

    def _forget(self) -> None:
        """Drop what every reader has behind it."""
        if self.awaits_readers():
            return
        least, place = min(self._readers.values(), default=(0, 0))
        self._passes = {number: one for number, one in self._passes.items() if number >= least}
        if least in self._passes:
            self._passes[least].stretches = [
                stretch for stretch in self._passes[least].stretches if stretch.stop > place
            ]


def find_generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Find what the loader and its samplers draw the order from."""
    holders = (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return [generator for generator in found if isinstance(generator, torch.Generator)]


def _read_host_clock() -> float:
    """Tell the time as `read_process_clock` does; an accelerator that computes meanwhile need not be waited for."""
    return time.perf_counter() if find_accelerator() is not None else read_clock()


def move(batch: Any, device: torch.device) -> Any:
    """Bring the tensors of a batch to the device."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return send(batch, device)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        items = [move(value, device) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
