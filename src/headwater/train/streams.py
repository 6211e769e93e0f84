"""The input stream: batches in an order that belongs to the study's seed, the same for every trial and every lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from headwater.errors import TrialError
from headwater.train.seeding import mix_seed

_CARRIED = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
    "prefetch_factor", "persistent_workers", "in_order",
)  # fmt: skip


class Stream:
    """A data loader whose n-th pass is a function of the seed and n alone, so that a resumed trial reads on rightly."""

    def __init__(self, loader: DataLoader[Any], seed: int, device: torch.device) -> None:
        self.loader = loader
        self.num_passes = 0
        """How often the data was gone through; a resumed trial sets it."""
        self._seed = seed
        self._device = device

    def __iter__(self) -> Iterator[Any]:
        for generator in _generators(self.loader):
            generator.manual_seed(mix_seed(self._seed, "pass", self.num_passes))
        self.num_passes += 1
        # Data are no lanes' business: without the mode, loading runs at its own speed.
        with torch._C.DisableTorchFunction():
            batches = iter(self.loader)
        while True:
            with torch._C.DisableTorchFunction():
                try:
                    batch = _move(next(batches), self._device)
                except StopIteration:
                    return
            yield batch

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def open_stream(data: Any, seed: int, device: torch.device, **options: Any) -> Stream:
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
    options = {**options, "generator": options.get("generator") or torch.Generator()}
    if type(data) is TensorDataset and options.get("collate_fn") is None and options.get("batch_size", 1) is not None:
        data, options["collate_fn"] = _Columns(data), _as_it_is
    return Stream(DataLoader(data, **options), seed, device)


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
    if type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        return {**options, "shuffle": True}
    return {**options, "sampler": sampler}


def _generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Find what the loader and its samplers draw the order from."""
    holders = (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return [generator for generator in found if isinstance(generator, torch.Generator)]


class _Columns(Dataset[Any]):
    """Reads a whole batch of a TensorDataset with one look-up per tensor instead of one per example."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.tensors = dataset.tensors

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        rows = torch.tensor(indices)
        return [tensor[rows] for tensor in self.tensors]

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


def _as_it_is(batch: Any) -> Any:
    return batch


def _move(batch: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: _move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        items = [_move(value, device) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
