"""The executor of this process: one placement after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.conduct.protocol import Conductor
from headwater.trials import Device, DevicePool, Event, Order, Reported, Saved, Stepped

if TYPE_CHECKING:
    from headwater.train.worker import Worker


FIXED = "it trains in its own process, which is one device; stop it, and resume it with --executor processes for more"
"""Why the devices of this process cannot be others."""


class InlineExecutor:
    """Runs each placement here and now, on one device."""

    def __init__(self, device: Device | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device = device or Device(name="cpu:0")
        self._clock = clock
        self._continuable = set[int]()
        """The trials that were saved in a state from which they can continue."""
        self._asked = set[tuple[int, int]]()
        """The placements and groups whose trials were to be saved before they leave."""

    def list_devices(self) -> Sequence[Device]:
        """Return the one there is."""
        return [self._device]

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place."""
        pool = DevicePool(names=(self._device.name,), kind=self._device.kind, fixed=FIXED)

        def wants_leave() -> bool:
            conductor.want_devices(pool)
            return False

        wants_leave()
        self.run_until(conductor, wants_leave, lambda study: wants_leave())

    def run_until(self, conductor: Conductor, wants_leave: Callable[[], bool], is_over: Callable[[str], bool]) -> bool:
        """Run until there is nothing more to place, or until `is_over` a study; tell whether it was the first.

        `is_over` is asked between placements, with the study of the last one. While `wants_leave`, a group that trains
        leaves at a report, to be placed anew. First its trials are saved as they go on: a group of which one trial
        cannot continue from a checkpoint stays until its end.
        """
        self._continuable, self._asked = set(), set()
        from headwater.train.worker import Worker

        workers: dict[str, Worker] = {}
        while placements := conductor.place(self.list_devices()):
            for placement in placements:
                if placement.study not in workers:
                    workers[placement.study] = Worker(conductor.brief(placement.study), self._clock)
                workers[placement.study].run(placement, partial(self._tell, conductor, wants_leave))
            if is_over(placements[-1].study):
                return False
        return True

    def close(self) -> None:
        """Do nothing: all there was is gone."""

    def _tell(self, conductor: Conductor, wants_leave: Callable[[], bool], event: Event) -> Order | None:
        is_wanted = isinstance(event, Reported | Stepped) and wants_leave()
        event = replace(event, device=self._device.name, time_s=self._clock())
        if isinstance(event, Saved):
            self._continuable |= event.epochs.keys()
        if not is_wanted or not isinstance(event, Reported) or event.is_over:
            return conductor.hear(event)
        numbers = {report.number for report in event.reports}
        if numbers <= self._continuable:
            conductor.regroup()
        return self._ask_to_save(event, numbers, conductor.hear(event))

    def _ask_to_save(self, event: Reported, numbers: Collection[int], order: Order | None) -> Order | None:
        """Have the trials that go on saved, once for each group."""
        if order is None or (event.key, event.group) in self._asked:
            return order
        self._asked.add((event.key, event.group))
        staying = [number for number in sorted(numbers) if number not in (*order.leave, *order.save)]
        return replace(order, save=(*order.save, *staying))
