"""The states of lanes: in memory, or as files where the record says, so that a killed study can go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headwater.errors import StoreError
from headwater.store import Folder, StatesPlace
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState

SAVING_SHARE = 0.03
"""How much of the time saving may take, where nobody has said how often."""
_ENDING = ".safetensors"


class StateStore(Mapping[int, LaneState]):
    """The latest state of each trial, by its number, and the weights that are kept as the best.

    A state of another study or trial, and a damaged one, is never returned: asking for it raises StoreError.
    """

    def __init__(
        self,
        place: StatesPlace | None = None,
        every: int | str | None = None,
        note_kept: Callable[[int, int], None] = lambda number, epoch: None,
    ) -> None:
        self._place = place
        self._folder = None if place is None else Folder(place.url)
        self._every = every
        self._note_kept = note_kept
        self._begin = time.perf_counter()
        self._seconds_saving = 0.0
        self._in_memory: dict[str, LaneState] = {}
        self._kept = None if place is None else place.kept
        stems = [name.removesuffix(_ENDING) for name in self._list_names() if name.endswith(_ENDING)]
        self._numbers = {int(stem) for stem in stems if stem.isascii() and stem.isdigit()}

    def __getitem__(self, number: int) -> LaneState:
        if number not in self._numbers:
            raise KeyError(number)
        return self._read(f"{number}{_ENDING}", number)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def where(self) -> str:
        """Where the states lie, for messages."""
        return "memory" if self._place is None else self._place.url

    def find_epoch(self, number: int, recorded: int) -> int:
        """Return the epoch of a trial's state; `recorded` is the last one that the record knows of.

        Raises:
            StoreError: There is none that can be used.
        """
        if number not in self:
            raise StoreError(f"there is no state of it in {self.where}")
        epoch = self[number].epoch
        if epoch > recorded:
            raise StoreError(f"its state in {self.where} is of epoch {epoch}, where the record ends with {recorded}")
        return epoch

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
        self._write(f"{number}{_ENDING}", number, state)
        self._numbers.add(number)

    def drop(self, number: int) -> None:
        """Forget a trial that will never train again."""
        if number in self._numbers:
            self._remove(f"{number}{_ENDING}")
            self._numbers.discard(number)

    def keep(self, number: int, state: LaneState) -> None:
        """Keep the state of the best trial, instead of that of the one that was best before.

        At every moment the record names one that is there: it is told of the new one before the old one goes.
        """
        self._write(_name_kept(number, state.epoch), number, state)
        self._kept = number, state.epoch
        self._note_kept(number, state.epoch)
        for name in self._list_names():
            if name.startswith("best-") and name != _name_kept(number, state.epoch):
                self._remove(name)

    @property
    def kept_number(self) -> int | None:
        """Which trial's state is kept as the best."""
        return None if self._kept is None else self._kept[0]

    def load_kept(self) -> LaneState:
        """Return the state of the best trial.

        Raises:
            StoreError: None is kept, or it cannot be used.
        """
        if self._kept is None:
            raise StoreError(
                "no weights were kept: they are where the training function counts its epochs by trial.epochs(...)"
            )
        number, epoch = self._kept
        state = self._read(_name_kept(number, epoch), number)
        if state.epoch != epoch:
            raise StoreError(
                f"the weights kept in {self.where} are of epoch {state.epoch}, where the record has {epoch}; "
                "they are not used"
            )
        return state

    def _read(self, name: str, number: int) -> LaneState:
        if self._place is None or self._folder is None:
            return self._in_memory[name]
        try:
            return decode_state(self._folder.read(name), self._place.study, number)
        except StoreError as error:
            raise StoreError(f"the state {self.where}/{name} cannot be used: {error}") from error

    def _write(self, name: str, number: int, state: LaneState) -> None:
        if self._place is None or self._folder is None:
            self._in_memory[name] = state
        else:
            self._folder.write(name, encode_state(state, self._place.study, number))

    def _remove(self, name: str) -> None:
        if self._folder is None:
            self._in_memory.pop(name, None)
        else:
            self._folder.remove(name)

    def _list_names(self) -> list[str]:
        return list(self._in_memory) if self._folder is None else self._folder.list_names()


def _name_kept(number: int, epoch: int) -> str:
    return f"best-{number}-{epoch}{_ENDING}"
