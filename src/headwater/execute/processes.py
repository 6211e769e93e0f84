"""The executor of this machine: a worker process for each device, which stays from one placement to the next.

A process inherits nothing: it is sent the function with its data once, and then placements, whose configurations go as
the codes of the space. A process that dies takes nothing with it but its placement.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait

from headwater.conduct.protocol import Conductor
from headwater.errors import LineLost
from headwater.execute.briefs import Briefs
from headwater.execute.serving import (
    QUIET,
    Answer,
    BriefMessage,
    Idle,
    Message,
    Raised,
    RunMessage,
    Told,
    encode_groups,
    serve,
)
from headwater.execute.worker_process import WorkerProcess
from headwater.settings import read_whole
from headwater.trials import Device, Lost, Order, Placement

LOOK_EVERY_S = 1.0
"""So often is it seen whether processes that say nothing are still there."""
PARTING_S = 5.0
"""So long may a process take to end when its work is done."""


class ProcessExecutor:
    """Runs placements side by side, each in the process of its device."""

    def __init__(self, num_workers: int, *, kind: str = "cpu", clock: Callable[[], float] = time.perf_counter) -> None:
        places = range(read_whole("num_workers", num_workers))
        self._devices = [Device(name=f"{kind}:{place}", kind=kind) for place in places]
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._has_started = False

    @property
    def has_started(self) -> bool:
        """Whether any process was ever started."""
        return self._has_started

    def list_devices(self) -> Sequence[Device]:
        """Return the cores or GPUs that train, one for each process."""
        return list(self._devices)

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way."""
        self._has_started = True
        with tempfile.TemporaryDirectory(prefix="headwater-", ignore_cleanup_errors=True) as folder:
            briefs = Briefs(conductor, folder)
            try:
                self._place(conductor, briefs)
                while busy := [worker for worker in self._workers.values() if worker.placement is not None]:
                    wait([worker.process.fileno() for worker in busy], LOOK_EVERY_S)
                    for worker in busy:
                        if worker.placement is not None and self._hear(worker, conductor):
                            self._place(conductor, briefs)
            except BaseException:
                self._kill()
                raise
            for worker in self._workers.values():
                worker.studies.clear()

    def close(self) -> None:
        """Let all processes come to their ends."""
        for worker in self._workers.values():
            worker.process.end(PARTING_S)
        self._workers.clear()

    def _place(self, conductor: Conductor, briefs: Briefs) -> None:
        """Start what the conductor has for idle devices."""
        idle = [device for device in self._devices if not self._is_busy(device)]
        for placement in conductor.place(idle) if idle else ():
            names = placement.devices if placement.as_ranks else placement.devices[:1]
            for rank, name in enumerate(names):
                if name not in self._workers:
                    self._workers[name] = _Worker(name)
                self._workers[name].start(placement, briefs, rank)

    def _is_busy(self, device: Device) -> bool:
        placements = [worker.placement for worker in self._workers.values() if worker.placement is not None]
        return any(device.name in placement.devices for placement in placements)

    def _hear(self, worker: _Worker, conductor: Conductor) -> bool:
        """Take in what a worker says, or that it is gone; tell whether anything else could be placed after that."""
        message = worker.hear()
        if message is None:
            return False
        if isinstance(message, Raised):
            raise message.error
        if isinstance(message, Idle):
            worker.placement = None
            return True
        assert isinstance(message, Told)
        event = replace(message.event, device=worker.name, time_s=self._clock())
        order = conductor.hear(event)
        if isinstance(event, Lost):
            self._remove(event.key)
        elif message.awaits_order:
            worker.answer(order)
        return not isinstance(event, QUIET)

    def _remove(self, key: int) -> None:
        """End the processes of a placement, one of which is gone."""
        for worker in list(self._workers.values()):
            if worker.placement is not None and worker.placement.key == key:
                worker.placement = None
                worker.process.kill()
                del self._workers[worker.name]

    def _kill(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
        self._workers.clear()


class _Worker:
    """A process, what it knows, and what it does now."""

    def __init__(self, name: str) -> None:
        self.name = name
        kind, _, place = name.partition(":")
        self.process = WorkerProcess(name, serve, environment={} if kind == "cpu" else {"CUDA_VISIBLE_DEVICES": place})
        self.placement: Placement | None = None
        self.studies: set[str] = set()
        """The studies whose briefs it has."""

    def start(self, placement: Placement, briefs: Briefs, rank: int) -> None:
        """Have a placement run there, as one of its ranks."""
        brief, packed = briefs.find(placement.study)
        self.placement, self._space = placement, brief.space
        if placement.study not in self.studies:
            self.studies.add(placement.study)
            self.send(BriefMessage(placement.study, packed))
        placement = replace(placement, groups=encode_groups(placement.groups, brief.space))
        self.send(RunMessage(placement, rank, briefs.name_meeting(placement.key)))

    def answer(self, order: Order | None) -> None:
        """Give the process the order that it waits for."""
        if order is not None and order.join:
            order = replace(order, join=encode_groups(order.join, self._space))
        self.send(Answer(order))

    def send(self, message: Message) -> None:
        """Send; that the process is gone is noticed when it is listened to."""
        with suppress(LineLost):
            self.process.send(message)

    def hear(self) -> Message | None:
        """Return what the process says, if only that it is gone; None while it says nothing."""
        assert self.placement is not None
        is_alive = self.process.is_alive  # asked first: what it has said before it ended is still to be heard
        try:
            if self.process.has_message():
                message: Message = self.process.receive()
                return message
            if is_alive:
                return None
        except LineLost:
            pass
        reason, was_killed = self.process.explain_end(), self.process.was_killed
        lost = Lost(key=self.placement.key, reason=reason, is_out_of_memory=was_killed)
        return Told(lost, awaits_order=False)
