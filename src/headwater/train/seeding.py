"""Seeds that follow from the study's seed alone, so that no order of work can change them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch


def mix_seed(*parts: int | str) -> int:
    """Return a seed below 2**63 that depends on all parts and their order."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def seed_everything(seed: int) -> None:
    """Seed torch, NumPy and Python, all three of which training code draws from."""
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:  # the same, without the stack trace that torch puts aside for GPUs it has not seen yet
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Draw from another seed for a while, and leave the main stream of random numbers as it was."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)):
        numpy_state, python_state = np.random.get_state(), random.getstate()
        seed_everything(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
