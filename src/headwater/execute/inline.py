"""The executor of this process: one placement after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.conduct.protocol import Conductor
from headwater.trials import Device, DevicePool, Event, Order, Reported

if TYPE_CHECKING:
    from headwater.train.worker import Worker


FIXED = "it trains in its own process, which is one device; stop it, and resume it with --executor processes for more"
"""Why the devices of this process cannot be others."""


class InlineExecutor:
    """Runs each placement here and now, on one device."""

    def __init__(self, device: Device | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device = device or Device(name="cpu:0")
        self._clock = clock

    def list_devices(self) -> Sequence[Device]:
        """Return the one there is."""
        return [self._device]

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place."""
        pool = DevicePool(names=(self._device.name,), kind=self._device.kind, fixed=FIXED)

        def is_over() -> bool:
            conductor.want_devices(pool)
            return False

        is_over()
        self.run_until(conductor, is_over)

    def run_until(self, conductor: Conductor, is_over: Callable[[], bool]) -> bool:
        """Run until there is nothing more to place, or something else is over; tell whether it was the first.

        In the second case, what trains leaves at its next report, to be placed elsewhere.
        """
        from headwater.train.worker import Worker

        workers: dict[str, Worker] = {}
        while placements := conductor.place(self.list_devices()):
            for placement in placements:
                if placement.study not in workers:
                    workers[placement.study] = Worker(conductor.brief(placement.study), self._clock)
                workers[placement.study].run(placement, partial(self._tell, conductor, is_over))
            if is_over():
                return False
        return True

    def close(self) -> None:
        """Do nothing: all there was is gone."""

    def _tell(self, conductor: Conductor, is_over: Callable[[], bool], event: Event) -> Order | None:
        if isinstance(event, Reported) and is_over():
            conductor.regroup()
        return conductor.hear(replace(event, device=self._device.name, time_s=self._clock()))
