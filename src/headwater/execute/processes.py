"""The executor of this machine: a worker process for each device, which stays from one placement to the next.

A process inherits nothing: it is sent the function with its data once, and then placements, whose configurations go as
the codes of the space. A process that dies takes nothing with it but its placement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

from headwater.conduct.protocol import Conductor
from headwater.errors import LineLost, StudyError
from headwater.execute.assigned_worker import AssignedWorker
from headwater.execute.briefs import Briefs
from headwater.execute.counting import count_devices, limit_to
from headwater.execute.lent_stages import LENT, LentStages
from headwater.execute.serving import (
    QUIET,
    Idle,
    Message,
    Raised,
    Ready,
    Told,
    serve,
)
from headwater.execute.worker_process import WorkerProcess
from headwater.settings import read_whole
from headwater.store import TemporaryFolder
from headwater.trials import Device, DevicePool, Ended, Lost, Measured, Starting

LOOK_EVERY_S = 1.0
"""So often is it seen whether processes that say nothing are still there."""
LOOK_OFTEN_S = 0.1
"""And so often whether a placement whose process is not ready yet is still wanted."""
PARTING_S = 5.0
"""So long may a process take to end when its work is done."""


class ProcessExecutor:
    """Runs placements side by side, each in the process of its device.

    Args:
        num_workers: How many devices the study has for itself; with bubbles, that may be none.
        kind: What trains, "cpu" or "cuda".
        bubbles: The folder in which a pipeline on this machine lends its bubbles by `hw.lend_bubbles`. Each of its
            stages is one device more, for as long as it trains.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        kind: str = "cpu",
        bubbles: str | Path | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        least = 1 if bubbles is None else 0
        names = tuple(f"{kind}:{place}" for place in range(read_whole("num_workers", num_workers, least)))
        self._given = self._pool = DevicePool(names=names, kind=kind, num_there=count_devices(kind))
        self._lent = None if bubbles is None else LentStages(bubbles, kind)
        self._declined: set[str] = set()
        """What is lent, and somebody wished to go."""
        self._clock = clock
        self._workers: dict[str, AssignedWorker[WorkerProcess]] = {}
        self._dismissed: list[WorkerProcess] = []
        self._has_started = False
        self._folder: TemporaryFolder | None = None
        self._briefs: Briefs | None = None

    @property
    def has_started(self) -> bool:
        """Whether any process was ever to train."""
        return self._has_started

    def prepare(self, conductor: Conductor, study: str) -> None:
        """Start the processes and have them load a study, for a later `run`; return at once.

        Raises:
            StudyError: Something that the study refers to cannot be sent.
        """
        briefs = self._open_briefs(conductor)
        briefs.find(study)
        for name in self._pool.names:
            self._find_worker(name).learn(study, briefs, in_background=True)

    def is_prepared(self) -> bool:
        """Tell whether all processes that were prepared have loaded their study."""
        for worker in list(self._workers.values()):
            try:
                while worker.end.has_message():
                    worker.note(worker.end.receive())
            except LineLost:
                self._workers.pop(worker.name).end.kill()
        return all(worker.is_ready for worker in self._workers.values())

    def find_fault(self) -> BaseException | None:
        """Return the reason why a process cannot run a study that it was to load."""
        return next((worker.fault for worker in self._workers.values() if worker.fault is not None), None)

    def list_devices(self) -> Sequence[Device]:
        """Return the cores or GPUs that train, one for each process, and what is lent."""
        if not self._workers:  # else what is lent no more must leave first
            self._look()
        return [self._describe(name) for name in self._pool.names]

    def follow(self, conductor: Conductor) -> bool:
        """Have the devices that the conductor wants; tell whether these are others than before.

        What is to go is given nothing new, and goes when what trains there has left.
        """
        there = (*self._pool.names, *self._pool.leaving)
        before = self._pool.names
        self._look()
        wanted = tuple(conductor.want_devices(self._pool))
        self._declined |= set(self._pool.names) - set(wanted)
        if wanted == before:
            return False
        self._pool = replace(self._pool, names=wanted, leaving=tuple(name for name in there if name not in wanted))
        if self._pool.leaving:
            conductor.regroup(self._pool.leaving)
        self._let_go()
        return True

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way.

        Raises:
            StudyError: It has no device of its own, and nothing is lent, or nothing any more.
        """
        self._look()
        self._has_started = True
        self._require_device()
        briefs = self._open_briefs(conductor)
        try:
            self._place(conductor, briefs)
            while busy := [worker for worker in self._workers.values() if worker.placement is not None]:
                is_ready = all(worker.has_begun for worker in busy)
                lines = [worker.end.fileno() for worker in busy]
                spoken = wait(lines, LOOK_EVERY_S if is_ready else LOOK_OFTEN_S)
                for worker, line in zip(busy, lines, strict=True):
                    if worker.placement is not None and self._hear(worker, conductor, line in spoken):
                        self._place(conductor, briefs)
                if self.follow(conductor):
                    self._place(conductor, briefs)
        except BaseException:
            self._kill()
            raise
        finally:
            self._close_briefs()
        for worker in self._workers.values():
            worker.studies.clear()
        self._require_end(conductor)

    def close(self) -> None:
        """Let all processes come to their ends; those that are not even ready need not."""
        self._dismiss(list(self._workers))
        self._close_briefs()
        until_s = time.perf_counter() + PARTING_S
        for process in self._dismissed:
            process.end(max(until_s - time.perf_counter(), 0.0))
        self._dismissed.clear()
        self._pool = self._given
        self._declined.clear()

    def _place(self, conductor: Conductor, briefs: Briefs) -> None:
        """Start what the conductor has for idle devices, and let those go that are to."""
        self.follow(conductor)
        self._let_go()
        idle = [device for device in self.list_devices() if not self._is_busy(device.name)]
        for placement in conductor.place(idle) if idle else ():
            names = placement.devices if placement.as_ranks else placement.devices[:1]
            for rank, name in enumerate(names):
                meeting = briefs.name_meeting(placement.key)
                self._find_worker(name).start(placement, briefs, rank, meeting, self._clock())

    def _find_worker(self, name: str) -> AssignedWorker[WorkerProcess]:
        if name not in self._workers:
            self._workers[name] = AssignedWorker(name, self._start_process(name))
        return self._workers[name]

    def _open_briefs(self, conductor: Conductor) -> Briefs:
        if self._briefs is None:
            self._folder = TemporaryFolder()
            self._briefs = Briefs(conductor, self._folder.path)
        return self._briefs

    def _close_briefs(self) -> None:
        if self._folder is not None:
            self._folder.remove()
        self._folder = self._briefs = None

    def _require_device(self) -> None:
        if self._lent is not None and not self._pool.names:
            raise StudyError(self._lent.explain_absence())

    def _require_end(self, conductor: Conductor) -> None:
        """Refuse to go on without a device, where trials are left."""
        if self._lent is not None and not self._pool.names and conductor.list_lanes() != []:
            raise StudyError(self._lent.explain_absence())

    def _start_process(self, name: str) -> WorkerProcess:
        if self._lent is not None and name in self._lent.names:
            return self._lent.start_process(name)
        kind, _, place = name.partition(":")
        return WorkerProcess(name, serve, environment={} if kind == "cpu" else limit_to(kind, place))

    def _look(self) -> None:
        """See what is lent now; what is lent no more is given nothing new."""
        if self._lent is not None:
            self._lent.look()
            own = tuple(name for name in self._pool.names if not name.startswith(LENT))
            lent = tuple(name for name in self._lent.names if name not in self._declined)
            self._pool = replace(self._pool, names=(*own, *lent))

    def _describe(self, name: str) -> Device:
        if self._lent is not None and name in self._lent.names:
            return self._lent.describe(name)
        return Device(name=name, kind=self._pool.kind)

    def _is_busy(self, name: str) -> bool:
        placements = [worker.placement for worker in self._workers.values() if worker.placement is not None]
        return any(name in placement.devices for placement in placements)

    def _let_go(self) -> None:
        """Part from devices that are to go and on which nothing trains any more."""
        gone = [name for name in self._pool.leaving if not self._is_busy(name)]
        if gone:
            self._pool = replace(self._pool, leaving=tuple(name for name in self._pool.leaving if name not in gone))
            self._dismiss(gone)

    def _dismiss(self, names: Sequence[str]) -> None:
        """Have the processes of these devices come to their ends; those that are not even ready need not."""
        self._dismissed = [process for process in self._dismissed if process.is_alive]
        for worker in [self._workers.pop(name) for name in names if name in self._workers]:
            if worker.is_ready:
                worker.end.dismiss()
                self._dismissed.append(worker.end)
            else:
                worker.end.kill()

    def _hear(self, worker: AssignedWorker[WorkerProcess], conductor: Conductor, has_spoken: bool) -> bool:
        """Take in what a worker says, or that it is gone; tell whether anything else could be placed after that."""
        message = _hear(worker, has_spoken)
        if isinstance(message, Ready) or (message is None and not worker.has_begun):
            return self._begin(worker, conductor)
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
        elif isinstance(event, Measured | Ended):  # of a placement that is no pack: then it is over
            _finish(worker)
        return not isinstance(event, QUIET)

    def _begin(self, worker: AssignedWorker[WorkerProcess], conductor: Conductor) -> bool:
        """Have a process that is ready begin; tell whether its placement was called off, which may be before."""
        assert worker.placement is not None
        key = worker.placement.key
        if conductor.hear(Starting(key=key, device=worker.name, time_s=self._clock())) is not None:
            self._call_off(key)
            return True
        if worker.is_ready:
            worker.begin(self._clock())
        return False

    def _call_off(self, key: int) -> None:
        """Give up a placement that has not begun; processes that get ready for it may be wanted for another."""
        for worker in list(self._workers.values()):
            if worker.placement is None or worker.placement.key != key:
                continue
            if worker.has_begun:  # and waits for other ranks
                worker.end.kill()
                del self._workers[worker.name]
            worker.placement = worker.message = None

    def _remove(self, key: int) -> None:
        """End the processes of a placement, one of which is gone."""
        for worker in list(self._workers.values()):
            if worker.placement is not None and worker.placement.key == key:
                worker.placement = None
                worker.end.kill()
                del self._workers[worker.name]

    def _kill(self) -> None:
        for process in [*(worker.end for worker in self._workers.values()), *self._dismissed]:
            process.kill()
        self._workers.clear()
        self._dismissed.clear()


def _finish(worker: AssignedWorker[WorkerProcess]) -> None:
    """Take in that a placement is over, which the process says at once: what follows may be for it too."""
    if worker.placement is None or worker.placement.as_ranks:  # ranks part before they say so, and may take a while
        return
    with suppress(LineLost):
        message = worker.end.receive()
        if isinstance(message, Raised):
            raise message.error
        worker.placement = None


def _hear(worker: AssignedWorker[WorkerProcess], has_spoken: bool) -> Message | None:
    """Return what the process says, if only that it is gone; None while it says nothing."""
    assert worker.placement is not None
    is_alive = has_spoken or worker.end.is_alive  # asked first: what it said before it ended is still to be heard
    try:
        if has_spoken or worker.end.has_message():
            message: Message = worker.end.receive()
            worker.note(message)
            return message
        if is_alive:
            return None
    except LineLost:
        pass
    reason, was_killed = worker.end.explain_end(), worker.end.was_killed
    lost = Lost(key=worker.placement.key, reason=reason, is_out_of_memory=was_killed)
    return Told(lost, awaits_order=False)
