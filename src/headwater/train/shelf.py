"""Where the states of lanes wait: in memory, or as files beside the record, so that a killed study can go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import StoreError
from headwater.train.checkpoint import load_state, save_state
from headwater.train.engines import LaneState

SAVING_SHARE = 0.03
"""How much of the time saving may take, where nobody has said how often."""


class Shelf(Mapping[int, LaneState]):
    """The latest state of each trial, by its number."""

    def __init__(self, folder: Path | None = None, every: int | str | None = None) -> None:
        self._folder = folder
        self._every = every
        self._begin = time.perf_counter()
        self._seconds_saving = 0.0
        self._in_memory: dict[int, LaneState] = {}
        self._kept: tuple[int, LaneState] | None = None
        stems = [path.stem for path in folder.glob("*.safetensors")] if folder is not None else []
        self._numbers = {int(stem) for stem in stems if stem.isdigit()}

    def __getitem__(self, number: int) -> LaneState:
        if self._folder is None:
            return self._in_memory[number]
        if number not in self._numbers:
            raise KeyError(number)
        return load_state(self._path(number))

    def __contains__(self, number: object) -> bool:
        return number in (self._in_memory if self._folder is None else self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._in_memory if self._folder is None else sorted(self._numbers))

    def __len__(self) -> int:
        return len(self._in_memory if self._folder is None else self._numbers)

    def find_start(self, number: int, tell: Callable[[str], None]) -> int:
        """Return the epoch that a trial goes on from; one whose state is damaged starts again."""
        try:
            return self[number].epoch if number in self else 0
        except StoreError as error:
            self.drop(number)
            tell(f"trial {number} starts again: {error}")
            return 0

    def is_due(self, epoch: int) -> bool:
        """Tell whether trials that go on should be saved after this epoch."""
        if self._folder is None or self._every is None:
            return False
        if isinstance(self._every, int):
            return epoch % self._every == 0
        return self._seconds_saving <= SAVING_SHARE * (time.perf_counter() - self._begin)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Count the time that goes into saving what goes on."""
        begin = time.perf_counter()
        yield
        self._seconds_saving += time.perf_counter() - begin

    def put(self, number: int, state: LaneState) -> None:
        """Keep a state instead of the trial's earlier one."""
        if self._folder is None:
            self._in_memory[number] = state
            return
        save_state(state, self._path(number))
        self._numbers.add(number)

    def drop(self, number: int) -> None:
        """Forget a trial that will never train again."""
        self._in_memory.pop(number, None)
        if self._folder is not None and number in self._numbers:
            self._path(number).unlink(missing_ok=True)
            self._numbers.discard(number)

    def keep(self, number: int, state: LaneState) -> None:
        """Keep the state of the best trial, instead of that of the one that was best before."""
        if self._folder is None:
            self._kept = number, state
            return
        save_state(state, self._folder / f"best-{number}.safetensors")
        for path in self._folder.glob("best-*.safetensors"):
            if path.stem != f"best-{number}":
                path.unlink(missing_ok=True)

    @property
    def kept_number(self) -> int | None:
        """Which trial's state is kept as the best."""
        if self._folder is None:
            return None if self._kept is None else self._kept[0]
        found = sorted(self._folder.glob("best-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
        return int(found[-1].stem.removeprefix("best-")) if found else None

    def load_kept(self) -> LaneState:
        """Return the state of the best trial.

        Raises:
            StoreError: None is kept, or it cannot be read.
        """
        number = self.kept_number
        if number is None:
            raise StoreError(
                "no weights were kept: they are where the training function counts its epochs by trial.epochs(...)"
            )
        if self._folder is None:
            assert self._kept is not None
            return self._kept[1]
        return load_state(self._folder / f"best-{number}.safetensors")

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{number}.safetensors"
