"""The saved states of a study as its conductor sees them: which there are, of which epoch, and which is the best.

Workers write and load them; here they are looked at, copied and removed, without torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from headwater.errors import StoreError
from headwater.store.folder import Folder
from headwater.store.state_format import StateHeader, open_state, seal_state
from headwater.trials import StatesPlace

_ENDING = ".safetensors"


class StateFiles:
    """The latest state of each trial, by its number, and the weights that are kept as the best.

    A state of another study or trial, and a damaged one, is never used: asking for its epoch raises StoreError.
    """

    def __init__(self, place: StatesPlace, note_kept: Callable[[int, int], None] = lambda number, epoch: None) -> None:
        self.kept = place.kept
        """The trial and the epoch of the weights that are kept."""
        self._place = place
        self._folder = Folder(place.url)
        self._note_kept = note_kept
        stems = [name.removesuffix(_ENDING) for name in self._folder.list_names() if name.endswith(_ENDING)]
        self._numbers = {int(stem) for stem in stems if stem.isascii() and stem.isdigit()}

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._numbers))

    @property
    def kept_number(self) -> int | None:
        """Which trial's weights are kept."""
        return None if self.kept is None else self.kept[0]

    def add(self, numbers: Iterable[int]) -> None:
        """Take in that the states of these trials were written."""
        self._numbers.update(numbers)

    def find_epoch(self, number: int, recorded: int) -> int:
        """Return the epoch of a trial's state; `recorded` is the last one that the record knows of.

        Raises:
            StoreError: There is none that can be used.
        """
        if number not in self:
            raise StoreError(f"there is no state of it in {self._place.url}")
        epoch = self._open(number)[0].epoch
        if epoch > recorded:
            raise StoreError(
                f"its state in {self._place.url} is of epoch {epoch}, where the record ends with {recorded}"
            )
        return epoch

    def inherit(self, number: int, parent: int, since: int) -> None:
        """Give a trial the state that another had at an epoch, and no other.

        Raises:
            StoreError: There is none of that epoch.
        """
        if parent not in self:
            raise StoreError(f"there is no state of trial {parent}, which it is a copy of")
        header, content = self._open(parent)
        if header.epoch != since:
            raise StoreError(f"it is a copy of trial {parent} at epoch {since}, of which there is epoch {header.epoch}")
        tree = json.loads(header.tree)
        tree["$map"] = [[name, True if name == "is_inherited" else value] for name, value in tree["$map"]]
        header = replace(header, trial=number, tree=json.dumps(tree))
        self._folder.write(name_state(number), seal_state(header, content))
        self.add([number])

    def drop(self, number: int) -> None:
        """Forget a trial that will never train again."""
        if number in self._numbers:
            self._folder.remove(name_state(number))
            self._numbers.discard(number)

    def set_kept(self, number: int, epoch: int) -> None:
        """Take in that other weights were written as the best.

        At every moment the record names some that are there: it is told of the new ones before the old ones go.
        """
        self.kept = number, epoch
        self._note_kept(number, epoch)
        for name in self._folder.list_names():
            if name.startswith("best-") and name != name_kept(number, epoch):
                self._folder.remove(name)

    def keep_saved(self, number: int) -> None:
        """Keep a trial's saved state as the best; one that is damaged is left out."""
        try:
            header, content = self._open(number)
        except StoreError:
            return
        self._folder.write(name_kept(number, header.epoch), content)
        self.set_kept(number, header.epoch)

    def _open(self, number: int) -> tuple[StateHeader, bytes]:
        name = name_state(number)
        content = self._folder.read(name)
        try:
            return open_state(content, self._place.study, number), content
        except StoreError as error:
            raise StoreError(f"the state {self._place.url}/{name} cannot be used: {error}") from error


def name_state(number: int) -> str:
    """Return what the file of a trial's state is called."""
    return f"{number}{_ENDING}"


def name_kept(number: int, epoch: int) -> str:
    """Return what the file of the best trial's weights is called."""
    return f"best-{number}-{epoch}{_ENDING}"
