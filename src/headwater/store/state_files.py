"""The saved states of a study as its conductor sees them: which there are, of which epochs, and which is the best.

Workers write and load them; here they are looked at, copied and removed, without torch. A state is written before the
report that it belongs to is recorded, beside the one before it, which goes when the report is recorded: there always is
one that the record knows of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headwater.errors import StoreError
from headwater.store.folder import Folder
from headwater.store.state_format import StateHeader, open_state, seal_state
from headwater.trials import StatesPlace

_NAME = re.compile(r"(\d+)-(\d+)\.safetensors", re.ASCII)


class StateFiles:
    """The states of each trial, by its number, and the weights that are kept as the best.

    A state of another study or trial, and a damaged one, is never used: asking for its epoch raises StoreError.
    """

    def __init__(self, place: StatesPlace, note_kept: Callable[[int, int], None] = lambda number, epoch: None) -> None:
        self.kept = place.kept
        """The trial and the epoch of the weights that are kept."""
        self._place = place
        self._folder = Folder(place.url)
        self._note_kept = note_kept
        self._epochs: dict[int, set[int]] = {}
        names = self._folder.list_names()
        self._bests = {name for name in names if name.startswith("best-")}
        """The files of weights that were the best; not those that a worker writes now, and has not told of."""
        for name in names:
            if found := _NAME.fullmatch(name):
                self._epochs.setdefault(int(found[1]), set()).add(int(found[2]))

    def __contains__(self, number: object) -> bool:
        return number in self._epochs

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._epochs))

    def has(self, number: int, epoch: int) -> bool:
        """Tell whether there is a trial's state of this epoch."""
        return epoch in self._epochs.get(number, ())

    @property
    def kept_number(self) -> int | None:
        """Which trial's weights are kept."""
        return None if self.kept is None else self.kept[0]

    def add(self, epochs: Mapping[int, int]) -> None:
        """Take in that states of these trials were written, and recorded; those before them go."""
        for number, epoch in epochs.items():
            for older in self._epochs.get(number, set()) - {epoch}:
                self._folder.remove(name_state(number, older))
            self._epochs[number] = {epoch}

    def find_epoch(self, number: int, recorded: int) -> int:
        """Return the epoch of a trial's latest state; `recorded` is the last one that the record knows of.

        Raises:
            StoreError: There is none that can be used.
        """
        if number not in self:
            raise StoreError(f"there is no state of it in {self._place.url}")
        epochs = [epoch for epoch in self._epochs[number] if epoch <= recorded]
        if not epochs:
            epoch = min(self._epochs[number])
            where = f"its state in {self._place.url} is of epoch {epoch}"
            raise StoreError(f"{where}, where the record ends with {recorded}")
        self._open(number, max(epochs))
        return max(epochs)

    def inherit(self, number: int, parent: int, since: int) -> None:
        """Give a trial the state that another had at an epoch, and no other.

        Raises:
            StoreError: There is none of that epoch.
        """
        if parent not in self:
            raise StoreError(f"there is no state of trial {parent}, which it is a copy of")
        if since not in self._epochs[parent]:
            there = " and ".join(map(str, sorted(self._epochs[parent])))
            raise StoreError(f"it is a copy of trial {parent} at epoch {since}, of which there is epoch {there}")
        header, content = self._open(parent, since)
        tree = json.loads(header.tree)
        tree["$map"] = [[name, True if name == "is_inherited" else value] for name, value in tree["$map"]]
        header = replace(header, trial=number, tree=json.dumps(tree))
        self._write(name_state(number, since), seal_state(header, content))
        self.add({number: since})

    def drop(self, number: int) -> None:
        """Forget a trial that will never train again."""
        for epoch in self._epochs.pop(number, set()):
            self._folder.remove(name_state(number, epoch))

    def note_kept(self, number: int, epoch: int) -> None:
        """Have the record name other weights as the best, which were written."""
        if self.kept != (number, epoch):
            self.kept = number, epoch
            self._note_kept(number, epoch)

    def set_kept(self, number: int, epoch: int) -> None:
        """Take in that other weights were written as the best.

        At every moment the record names some that are there: it is told of the new ones before the old ones go.
        """
        self.note_kept(number, epoch)
        self._remove_bests(name_kept(number, epoch))

    def remove_kept(self, number: int, epoch: int) -> None:
        """Take in that weights were written as the best when others were better already."""
        assert self.kept is not None
        self._bests.add(name_kept(number, epoch))
        self._remove_bests(name_kept(*self.kept))

    def _remove_bests(self, kept: str) -> None:
        for name in self._bests - {kept}:
            self._folder.remove(name)
        self._bests = {kept}

    def keep_saved(self, number: int) -> None:
        """Keep a trial's saved state as the best, unless it is damaged, or older than what is kept of it."""
        epoch = max(self._epochs[number])
        if self.kept is not None and self.kept[0] == number and self.kept[1] >= epoch:
            return
        try:
            header, content = self._open(number, epoch)
        except StoreError:
            return
        self._write(name_kept(number, header.epoch), content)
        self.set_kept(number, header.epoch)

    def _write(self, name: str, content: bytes) -> None:
        self._folder.write(name, content)
        self._folder.flush()

    def _open(self, number: int, epoch: int) -> tuple[StateHeader, bytes]:
        name = name_state(number, epoch)
        content = self._folder.read(name)
        try:
            header = open_state(content, self._place.study, number)
            if header.epoch != epoch:
                raise StoreError(f"it is of epoch {header.epoch}")
        except StoreError as error:
            raise StoreError(f"the state {self._place.url}/{name} cannot be used: {error}") from error
        return header, content


def name_state(number: int, epoch: int) -> str:
    """Return what the file of a trial's state is called."""
    return f"{number}-{epoch}.safetensors"


def name_kept(number: int, epoch: int) -> str:
    """Return what the file of the best trial's weights is called."""
    return f"best-{number}-{epoch}.safetensors"
