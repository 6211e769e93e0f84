"""The states of lanes as a worker writes and loads them, where the record says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.errors import StoreError
from headwater.store import Folder
from headwater.store.state_files import name_kept, name_state
from headwater.train.checkpoint import decode_state, encode_state
from headwater.train.engines import LaneState
from headwater.trials import StatesPlace
from headwater.trials.joint_numbers import split_number


class StateFolder(Protocol):
    """Files by name, in the place of the states."""

    def write(self, name: str, content: bytes) -> None:
        """Put a file in the place of the earlier one of that name."""

    def flush(self) -> None:
        """Have all that was written outlast the machine."""

    def read(self, name: str) -> bytes:
        """Return what a file holds; raises StoreError where it cannot be read."""


class LaneStates(Protocol):
    """Where the lanes of groups have their states."""

    def put(self, number: int, state: LaneState) -> None:
        """Write a state beside the trial's earlier one."""

    def keep(self, number: int, state: LaneState) -> None:
        """Write a state as the best of its study."""

    def flush(self) -> None:
        """Have all that was written outlast the machine."""

    def load(self, number: int, epoch: int) -> LaneState:
        """Return the state that a trial had at an epoch; raises StoreError where there is none."""


class StateStore:
    """Writes and loads the states of one study's trials.

    A state of another study or trial, and a damaged one, is never returned: asking for it raises StoreError.
    """

    def __init__(self, place: StatesPlace, folder: StateFolder | None = None) -> None:
        self._place = place
        self._folder = folder or Folder(place.url)

    def put(self, number: int, state: LaneState) -> None:
        """Write a state beside the trial's earlier one, which goes when this one is recorded."""
        self._folder.write(name_state(number, state.epoch), encode_state(state, self._place.study, number))

    def keep(self, number: int, state: LaneState) -> None:
        """Write a state beside that of the trial which was best before; whoever keeps the record removes that."""
        self._folder.write(name_kept(number, state.epoch), encode_state(state, self._place.study, number))

    def flush(self) -> None:
        """Have all that was written outlast the machine."""
        self._folder.flush()

    def load(self, number: int, epoch: int) -> LaneState:
        """Return the state that a trial had at an epoch.

        Raises:
            StoreError: There is none, or it cannot be used.
        """
        return self._read(name_state(number, epoch), number)

    def load_kept(self) -> LaneState:
        """Return the weights that the record says are kept as the best.

        Raises:
            StoreError: None are kept, or they cannot be used.
        """
        if self._place.kept is None:
            raise StoreError(
                "no weights were kept: no trial has come to its end; on the way there they are kept where the "
                "training function counts its epochs by trial.epochs(...)"
            )
        number, epoch = self._place.kept
        state = self._read(name_kept(number, epoch), number)
        if state.epoch != epoch:
            raise StoreError(
                f"the weights kept in {self._place.url} are of epoch {state.epoch}, where the record has {epoch}; "
                "they are not used"
            )
        return state

    def _read(self, name: str, number: int) -> LaneState:
        try:
            return decode_state(self._folder.read(name), self._place.study, number)
        except StoreError as error:
            raise StoreError(f"the state {self._place.url}/{name} cannot be used: {error}") from error


class JointStates:
    """The states of several studies that train together, each study's in a place of its own.

    Trials are known by the numbers that say which study they belong to.
    """

    def __init__(self, stores: Sequence[StateStore]) -> None:
        self._stores = stores

    def put(self, number: int, state: LaneState) -> None:
        """Write a state beside the trial's earlier one."""
        member, own = split_number(number)
        self._stores[member].put(own, state)

    def keep(self, number: int, state: LaneState) -> None:
        """Write a state as the best of its study."""
        member, own = split_number(number)
        self._stores[member].keep(own, state)

    def flush(self) -> None:
        """Have all that was written outlast the machine."""
        for store in self._stores:
            store.flush()

    def load(self, number: int, epoch: int) -> LaneState:
        """Return the state that a trial had at an epoch; raises StoreError where there is none."""
        member, own = split_number(number)
        return self._stores[member].load(own, epoch)
