"""The executor of workers that join: any machine that knows where the study is, and its key, offers a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import Empty

from headwater.conduct.protocol import Conductor
from headwater.execute.assigned_worker import AssignedWorker
from headwater.execute.briefs import Briefs
from headwater.execute.join_keys import KEY_FILE, have_key
from headwater.execute.joining import (
    PARTING_S,
    Entrance,
    Gone,
    Joined,
    JoinedLine,
    Leaves,
    Met,
    News,
    Said,
    read_address,
)
from headwater.execute.serving import QUIET, Idle, Message, Raised, Ready, Told
from headwater.settings import check_one_of
from headwater.store import TemporaryFolder
from headwater.trials import Device, DevicePool, Lost, Noted, Placement, Starting

LOOK_EVERY_S = 1.0
"""So often is it seen whether the run is to end, while nobody says anything."""
LOOK_OFTEN_S = 0.1
"""And so often whether a placement whose worker is not ready yet is still wanted."""
NO_KEY = -1
"""Of what belongs to no placement."""
FIXED = "workers join it: start another with headwater worker --join {}, or end one where it runs, with Ctrl-C"
"""Why nobody can wish for other devices."""


class JoinExecutor:
    """Runs placements side by side, each on a worker that has joined by `headwater worker --join`.

    Args:
        listen: Where workers join, as HOST:PORT; with port 0, the system chooses one. The study says where it is when
            it runs. By default only workers of this machine can join; with `"0.0.0.0:7700"`, those of others too.
        key_file: The file with the key that the study and its workers share; it is written if it is not there.
        kind: What they train on, "cpu" or "cuda".
        clock: What events are stamped with.
        see_to_workers: Called from time to time while nobody is there to train.

    Whoever has the key can run code as the user of the study, and the study as that of the workers.

    Raises:
        StudyError: That is no address, or no kind.
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        key_file: str | Path = KEY_FILE,
        kind: str = "cpu",
        clock: Callable[[], float] = time.perf_counter,
        see_to_workers: Callable[[], None] = lambda: None,
    ) -> None:
        check_one_of("kind", kind, ("cpu", "cuda"))
        read_address(listen)
        self._listen = listen
        self._key_file = key_file
        self._kind = kind
        self._clock = clock
        self._see_to_workers = see_to_workers
        self._entrance: Entrance | None = None
        self._workers: dict[str, AssignedWorker[JoinedLine]] = {}
        self._leaving: set[str] = set()
        """Those that want to go, are given nothing new, and go when what trains there has left."""

    @property
    def kind(self) -> str:
        """What its workers train on, whatever this machine has."""
        return self._kind

    @property
    def url(self) -> str:
        """Where workers join."""
        return self._open().url

    def list_devices(self) -> Sequence[Device]:
        """Return what has joined until now; more may come at any time."""
        self._look()
        return [worker.end.device for worker in self._list_staying()]

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way; wait where nobody has joined."""
        with self._attending(), TemporaryFolder() as folder:
            briefs = Briefs(conductor, folder)
            text = f"workers join with headwater worker --join {self.url}"
            conductor.hear(Noted(key=NO_KEY, text=text, time_s=self._clock()))
            try:
                self._place(conductor, briefs)
                while self._is_busy() or self._awaits_workers(conductor):
                    if self._take_next(conductor):
                        self._place(conductor, briefs)
            except BaseException:
                for worker in list(self._workers.values()):
                    self._drop(worker)
                raise
            for worker in self._workers.values():
                worker.studies.clear()

    @contextmanager
    def _attending(self) -> Iterator[None]:
        """Hear who wants to leave, so that nobody is let go who trains; before and after, none does."""
        self._open().attend(True)
        self._look()
        try:
            yield
        finally:
            self._open().attend(False)
            self._look()
            for name in list(self._leaving):
                self._remove(self._workers[name].end)

    def close(self) -> None:
        """Let all workers go, and nobody join any more."""
        if self._entrance is None:
            return
        self._look()
        self._entrance.close()
        lines = [worker.end for worker in self._workers.values()]
        for line in lines:
            line.dismiss()
        until_s = time.monotonic() + PARTING_S
        for line in lines:
            line.socket.await_close(max(until_s - time.monotonic(), 0.0))
        self._workers.clear()
        self._leaving.clear()
        self._entrance = None

    def _open(self) -> Entrance:
        if self._entrance is None:
            self._entrance = Entrance(self._listen, have_key(self._key_file), self._kind)
        return self._entrance

    def _look(self) -> None:
        """Take in who has come and gone while nothing ran."""
        entrance = self._open()
        while not entrance.news.empty():
            news = entrance.news.get()
            worker = self._find(news.line)
            if isinstance(news, Joined):
                self._add(news.line)
            elif worker is not None and isinstance(news, Gone | Leaves):
                self._remove(news.line)
            elif worker is not None and isinstance(news, Said):
                worker.note(news.message)

    def _is_busy(self) -> bool:
        return any(worker.placement is not None for worker in self._workers.values())

    def _awaits_workers(self, conductor: Conductor) -> bool:
        """Tell whether there is nobody to train, and something is left to be trained."""
        if self._list_staying() or conductor.is_to_end() or conductor.list_lanes() == []:
            return False
        self._see_to_workers()
        return True

    def _list_staying(self) -> list[AssignedWorker[JoinedLine]]:
        return [worker for worker in self._workers.values() if worker.name not in self._leaving]

    def _place(self, conductor: Conductor, briefs: Briefs) -> None:
        """Start what the conductor has for idle devices, after those have gone that wanted to."""
        placements = [worker.placement for worker in self._workers.values() if worker.placement is not None]
        busy = {name for placement in placements for name in placement.devices}
        for name in self._leaving - busy:
            self._remove(self._workers[name].end)
        names = tuple(worker.name for worker in self._list_staying())
        fixed = FIXED.format(self.url)
        leaving = tuple(sorted(self._leaving))
        conductor.want_devices(DevicePool(names=names, leaving=leaving, kind=self._kind, fixed=fixed))
        idle = [worker.end.device for worker in self._list_staying() if worker.name not in busy]
        for placement in conductor.place(idle) if idle else ():
            self._start(placement, briefs)

    def _start(self, placement: Placement, briefs: Briefs) -> None:
        """Have a placement run on its first device, or on all as ranks."""
        workers = [self._workers[name] for name in placement.devices]
        nodes = [worker.end.node for worker in workers]
        if placement.as_ranks:
            meeting = briefs.name_meeting(placement.key) if all(worker.is_home for worker in workers) else ""
            for rank, worker in enumerate(workers):
                worker.start(placement, briefs, rank, meeting, self._clock())
            if not meeting:
                workers[0].end.ask_meeting()
            return
        # Only devices of one machine share its memory, and can lend their threads.
        near = tuple(worker.name for worker, node in zip(workers, nodes, strict=True) if node == nodes[0])
        num_near = sum(worker.end.node == nodes[0] for worker in self._workers.values())
        placement = replace(placement, devices=near, num_devices=min(placement.num_devices, num_near))
        workers[0].start(placement, briefs, 0, "", self._clock())

    def _take_next(self, conductor: Conductor) -> bool:
        """Wait for what is heard next, and take it in; tell whether anything else could be placed after that."""
        unready = [worker for worker in self._workers.values() if worker.placement is not None and not worker.has_begun]
        try:
            news = self._open().news.get(timeout=LOOK_OFTEN_S if unready else LOOK_EVERY_S)
        except Empty:
            called_off = [self._begin(worker, conductor) for worker in unready if worker.placement is not None]
            return any(called_off) or not unready
        if isinstance(news, Joined):
            self._add(news.line)
            return True
        worker = self._find(news.line)
        return worker is not None and self._take_in(news, worker, conductor)

    def _take_in(self, news: News, worker: AssignedWorker[JoinedLine], conductor: Conductor) -> bool:
        if isinstance(news, Gone):
            self._lose(worker, conductor, news)
            return True
        if isinstance(news, Leaves):
            if worker.name in self._leaving:
                return False
            self._leaving.add(worker.name)
            conductor.hear(Noted(key=NO_KEY, text=f"{worker.name} leaves: {news.reason}", time_s=self._clock()))
            conductor.regroup({worker.name})
            return True
        if isinstance(news, Met):
            return self._meet(worker, conductor, news.meeting)
        assert not isinstance(news, Joined)
        return self._hear(news.message, worker, conductor)

    def _hear(self, message: Message, worker: AssignedWorker[JoinedLine], conductor: Conductor) -> bool:
        """Take in what a worker says; tell whether anything else could be placed after that."""
        worker.note(message)
        if isinstance(message, Raised):
            raise message.error
        if isinstance(message, Ready):
            return worker.message is not None and self._begin(worker, conductor)
        if isinstance(message, Idle):
            worker.placement = None
            return True
        assert isinstance(message, Told)
        event = replace(message.event, device=worker.name, time_s=self._clock())
        order = conductor.hear(event)
        if isinstance(event, Lost):
            self._give_up(event.key)
        elif message.awaits_order:
            worker.answer(order)
        return not isinstance(event, QUIET)

    def _begin(self, worker: AssignedWorker[JoinedLine], conductor: Conductor) -> bool:
        """Have a worker begin if it can; tell whether its placement was called off, which may be before."""
        assert worker.placement is not None
        key = worker.placement.key
        if conductor.hear(Starting(key=key, device=worker.name, time_s=self._clock())) is not None:
            self._give_up(key)
            return True
        if worker.can_begin:
            worker.begin(self._clock())
        return False

    def _meet(self, first: AssignedWorker[JoinedLine], conductor: Conductor, meeting: str) -> bool:
        """Have those that train a trial together begin, now that it is known where they meet."""
        called_off = False
        for worker in list(self._workers.values()):
            if worker.message is not None and worker.placement is first.placement:
                worker.message = replace(worker.message, meeting=meeting)
                called_off |= worker.placement is not None and self._begin(worker, conductor)
        return called_off

    def _lose(self, worker: AssignedWorker[JoinedLine], conductor: Conductor, gone: Gone) -> None:
        """Take in that a worker is gone, and with it what it trained."""
        placement = worker.placement
        self._remove(gone.line)
        conductor.regroup({worker.name})
        if placement is not None:
            reason = f"the worker {worker.name} that trained it was lost: {gone.reason}"
            lost = Lost(key=placement.key, reason=reason, is_out_of_memory=gone.is_out_of_memory)
            conductor.hear(replace(lost, device=worker.name, time_s=self._clock()))
            self._give_up(placement.key)

    def _give_up(self, key: int) -> None:
        """Have nobody run a placement any more; who has begun with it hangs up, and joins anew."""
        for worker in list(self._workers.values()):
            if worker.placement is not None and worker.placement.key == key:
                if worker.has_begun:
                    self._drop(worker)
                worker.placement = worker.message = None

    def _add(self, line: JoinedLine) -> None:
        self._workers[line.device.name] = AssignedWorker(line.device.name, line, is_home=line.is_home)

    def _find(self, line: JoinedLine) -> AssignedWorker[JoinedLine] | None:
        """Return the worker of a line, unless it was given up."""
        worker = self._workers.get(line.device.name)
        return worker if worker is not None and worker.end is line else None

    def _drop(self, worker: AssignedWorker[JoinedLine]) -> None:
        """Hang up; a worker that can still be of use joins anew."""
        worker.end.socket.drop()
        self._forget(worker.end)

    def _remove(self, line: JoinedLine) -> None:
        """Let a worker go that wanted to, or is gone."""
        line.dismiss()
        self._forget(line)

    def _forget(self, line: JoinedLine) -> None:
        del self._workers[line.device.name]
        self._leaving.discard(line.device.name)
        self._open().forget(line)
