"""Seeds that follow from the study's seed alone, so that no order of work can change them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import string_at
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from headwater import devices


def mix_seed(*parts: int | str) -> int:
    """Return a seed below 2**63 that depends on all parts and their order."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def seed_everything(seed: int) -> None:
    """Seed torch, NumPy and Python, all three of which training code draws from."""
    devices.seed_all(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Draw from another seed for a while, and leave the main stream of random numbers as it was."""
    main = Randomness()
    seed_everything(seed)
    try:
        yield
    finally:
        main.restore()


class Randomness:
    """Where the random numbers of torch, NumPy and Python stand, for runs that take turns.

    Reading NumPy's state is slow, so that it is read again only if its generator has moved.
    """

    def __init__(self) -> None:
        self._numpy: Any = None  # NumPy's own tuple
        self._numpy_bytes = b""
        self.save()

    def save(self) -> None:
        """Note where they stand now."""
        self._torch, self._python = torch.get_rng_state(), random.getstate()
        self._accelerators = devices.read_generators()
        now = _numpy_bytes()
        if self._numpy is None or self._has_spare_normal or now != self._numpy_bytes:
            self._numpy, self._numpy_bytes = np.random.get_state(), now

    def restore(self) -> None:
        """Bring them back to where they were."""
        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        devices.restore_generators(self._accelerators)
        if self._has_spare_normal or _numpy_bytes() != self._numpy_bytes:
            np.random.set_state(self._numpy)

    def stands_as(self, other: Randomness) -> bool:
        """Tell whether both would draw the same from here."""
        ours, theirs = ((*each._accelerators, each._torch) for each in (self, other))
        are_alike = len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
        spares = [each._numpy[3:] for each in (self, other)]
        is_same = self._python == other._python and self._numpy_bytes == other._numpy_bytes
        return are_alike and is_same and spares[0] == spares[1]

    @property
    def _has_spare_normal(self) -> bool:
        """Whether NumPy holds a number that it has drawn already: the generator does not move when it is handed out."""
        return bool(self._numpy[3])


def _numpy_bytes() -> bytes:
    """Return the state of NumPy's Mersenne twister: 624 words and a place."""
    generator = np.random.mtrand.get_bit_generator()
    return string_at(generator.ctypes.state_address, 625 * 4)
