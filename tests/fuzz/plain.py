"""A trial in plain PyTorch: what a training function would be given if there were no Headwater.

It takes from Headwater only what is documented of seeds and reports: torch, NumPy and Python are seeded with the study's
seed when the function starts and afresh before each epoch; the n-th pass over the data is shuffled by a seed of its
own, and a function that builds a model runs under the trial's; a trial whose metric is not finite ends at that report.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader


class Leave(Exception):  # noqa: N818 - no error: the trial was told to end
    """The trial ends at a report."""


class PlainTrial:
    """Everything a training function may ask of its trial, with nothing but torch."""

    device = torch.device("cpu")

    def __init__(self, config: Mapping[str, Any], number: int, seed: int, num_epochs: int | None) -> None:
        self.config = config
        self.seed = seed
        self.history: list[tuple[int, dict[str, float]]] = []
        self.has_left = False
        """Whether it was told to end at a report."""
        self._number = number
        self._num_epochs = num_epochs
        self._num_streams = 0
        seed_all(seed)

    def prepare_model(self, model: Any) -> Any:
        """Return the module itself, or the one that a function builds under the trial's own seed."""
        if isinstance(model, nn.Module):
            return model
        states = torch.get_rng_state(), np.random.get_state(), random.getstate()
        seed_all(mix(self.seed, "trial", self._number))
        built = model()
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        return built

    def prepare_optimizer(self, optimizer: Any, params: Any, **options: Any) -> Any:
        """Build an optimizer of torch."""
        kind = getattr(torch.optim, optimizer) if isinstance(optimizer, str) else optimizer
        return kind(params.parameters() if isinstance(params, nn.Module) else params, **options)

    def prepare_scheduler(self, scheduler: Any, optimizer: Any, **options: Any) -> Any:
        """Build a scheduler of torch."""
        kind = getattr(torch.optim.lr_scheduler, scheduler) if isinstance(scheduler, str) else scheduler
        return kind(optimizer, **options)

    def prepare_data_loader(self, data: Any, **options: Any) -> Any:
        """Build a loader of torch whose passes have seeds."""
        self._num_streams += 1
        return _Loader(data, mix(self.seed, "stream", self._num_streams - 1), options)

    def epochs(self, count: int) -> Iterator[int]:
        """Count epochs, each under a seed."""
        for epoch in range(count):
            seed_all(mix(self.seed, "epoch", epoch))
            yield epoch
        seed_all(mix(self.seed, "epoch", count))

    def report(self, **metrics: Any) -> None:
        """Note the metrics."""
        numbers = {name: float(value) for name, value in metrics.items()}
        self.history.append((len(self.history) + 1, numbers))
        self.has_left = not math.isfinite(numbers["loss"]) or len(self.history) == self._num_epochs
        if self.has_left:
            raise Leave


class _Loader:
    def __init__(self, data: Any, seed: int, options: dict[str, Any]) -> None:
        self._seed = seed
        self._num_passes = 0
        self._order = torch.Generator()
        self._loader = DataLoader(data, generator=self._order, **options)

    def __iter__(self) -> Iterator[Any]:
        self._order.manual_seed(mix(self._seed, "pass", self._num_passes))
        self._num_passes += 1
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


def train_plain(train: Callable[[Any], Any], trial: PlainTrial) -> BaseException | None:
    """Train one trial; return what it raised."""
    try:
        train(trial)
    except Leave:
        return None
    except Exception as error:  # whatever a program raises is its result
        return error
    return None


def mix(*parts: int | str) -> int:
    """Return a seed that depends on all parts and their order."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1


def seed_all(seed: int) -> None:
    """Seed torch, NumPy and Python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
