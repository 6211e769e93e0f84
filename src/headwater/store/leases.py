"""Which process may write a study: a lease in the record, held by one at a time and checked with every write.

While it runs, the holder adds to a counter. Nobody compares the clocks of two machines: who wants the lease watches the
counter, by its own monotonic clock, and takes over when it has stood still for SILENT_S; a process of the same machine
that is gone is known at once. Each acquisition has a higher fence, and a write that carries an older one is refused, in
its own transaction: a process that was only asleep cannot write into what its successor trains.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn, Self

from headwater.errors import StoreError, StudyError
from headwater.store.device_wishes import read_wishes
from headwater.store.runner import Runner
from headwater.store.store import Store
from headwater.store.values import StudyInfo
from headwater.trials import DeviceWish

STOP = "stop"
"""The key of the fact that somebody asked a run to stop."""
BEAT_S = 5.0
"""So often does a holder add to its counter."""
SILENT_S = 60.0
"""A holder whose counter stands still for so long has lost the lease to whoever wants it."""
LOOK_S = 1.0
"""So often is the counter of another looked at."""
LISTEN_S = 1.0
"""A running study looks for wishes no more often than this."""


def find_runner(store: Store, study_id: int) -> Runner | None:
    """Return the process that runs the study as far as the record knows; one that was killed still stands there."""
    return store.read_lease(study_id)


def ask_to_stop(store: Store, study_id: int, runner: Runner, asker: str) -> None:
    """Ask the process that runs a study to end it after its next report."""
    store.add_fact(study_id, STOP, {"fence": runner.fence, "asker": asker})


def find_asker(store: Store, study_id: int, runner: Runner) -> str | None:
    """Return who has asked this run to stop, None if nobody has; a wish is for one run, never for a later one."""
    fact = store.fact(study_id, STOP)
    is_meant = isinstance(fact, dict) and fact.get("fence") == runner.fence
    return str(fact.get("asker")) if is_meant else None


class Lease:
    """The right of this process to write a study: taken on entering, kept while it runs, and given back."""

    def __init__(
        self,
        store: Store,
        study: StudyInfo,
        *,
        tell: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Tell it when there is something to wait for."""
        self._store = store
        self._study = study
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._hears_askers = self._hears_wishes = clock() if store.is_shared else math.inf
        """When the record is next looked at for wishes to stop, and for those about devices; never where nobody can."""
        self.num_heard = 0
        """Where in the record the last wish about devices stands that was heard."""
        self._runner = Runner.here()
        self._is_over = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._runner = replace(self._runner, fence=self._acquire())
        if self._store.is_shared:  # else nobody could look
            self._beating.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over.set()
        if self._beating.is_alive():
            self._beating.join()
        try:
            self._store.release_lease(self._study.id, self.fence)
        except StoreError:
            if kind is None:  # else the record was lost before, and that is what must be said
                raise

    @property
    def fence(self) -> int:
        """What every write of this run carries."""
        return self._runner.fence

    def hear_asker(self) -> str | None:
        """Return who asks this process to stop; None in between, for the record is read once a second at most."""
        now = self._clock()
        if now < self._hears_askers:
            return None
        self._hears_askers = now + LISTEN_S
        return find_asker(self._store, self._study.id, self._runner)

    def hear_wishes(self) -> list[DeviceWish]:
        """Return what was wished of this run's devices since this was last asked; it is read once a second at most."""
        now = self._clock()
        if now < self._hears_wishes:
            return []
        self._hears_wishes = now + LISTEN_S
        wishes, self.num_heard = read_wishes(self._store, self._study.id, self._runner, self.num_heard)
        return wishes

    def _acquire(self) -> int:
        """Take the lease from nobody, or from a process that has died.

        Raises:
            StudyError: Another process runs the study.
        """
        while True:
            holder = self._store.read_lease(self._study.id)
            if holder is not None and holder.may_live():
                self._watch(holder)
            fence = self._store.take_lease(self._study.id, self._runner, instead_of=holder)
            if fence is not None:
                return fence

    def _watch(self, holder: Runner) -> None:
        """Return when the holder has been silent for long enough, or has gone."""
        if holder.is_here and not holder.is_this_process:
            self._refuse(holder)
        self._tell(
            f"study {self._study.name} was last run by process {holder.pid} on {holder.host}; waiting up to "
            f"{SILENT_S:.0f} s to see whether it still is"
        )
        give_up = self._clock() + SILENT_S
        while self._clock() < give_up:
            self._sleep(LOOK_S)
            found = self._store.read_lease(self._study.id)
            if found is None:
                return
            if found != holder:
                self._refuse(found)

    def _refuse(self, holder: Runner) -> NoReturn:
        raise StudyError(
            f"study {self._study.name!r} is still running, in process {holder.pid} on {holder.host}; wait for it, or "
            "end it with headwater stop and resume it then"
        )

    def _beat(self) -> None:
        """Add to the counter; what goes wrong here is said by the next write."""
        while not self._is_over.wait(BEAT_S):
            with suppress(StoreError):
                self._store.beat_lease(self._study.id, self.fence)
