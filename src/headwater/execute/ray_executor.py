"""The executor of a Ray cluster: a worker for each device, which stays from one placement to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater.conduct.protocol import Conductor
from headwater.execute.briefs import Briefs
from headwater.execute.file_requests import FileRequest, answer_request
from headwater.execute.node_keeper import NodeKeeper
from headwater.execute.ray_cluster import Death, RayWorker, WorkerPool
from headwater.execute.ray_connection import Ref, connect, disconnect
from headwater.execute.sending import find_data_file
from headwater.execute.serving import QUIET, BriefMessage, Idle, Message, Raised, Ready, RunMessage, Told
from headwater.settings import read_whole
from headwater.store import TemporaryFolder, is_on_network
from headwater.trials import Device, Lost, Placement

ALL = "it trains on all of a Ray cluster; add a node with `ray start --address=...`, and it is used in a second or so"
COUNTED = "it trains on {} workers of a Ray cluster, as it was told; stop it, and resume it with another --devices"
"""Why nobody can wish for more devices."""
KEPT = "its nodes come and go by a plan; end it with headwater stop, and resume it with another"


class RayExecutor:
    """Runs placements side by side, each in the worker of its device: a CPU or a GPU of a node.

    Args:
        address: "auto" for the cluster that runs here, or its address; None for the one that this process is connected
            to, or else a new one on this machine, which ends with `close`.
        num_workers: How many workers to have; None for as many as the cluster has CPUs, or GPUs, at any time.
        kind: What they train on, "cpu" or "cuda".
        clock: What events are stamped with.
        keeper: Who sees to it that there are nodes, if they come and go while it runs.
    """

    def __init__(
        self,
        address: str | None = None,
        num_workers: int | None = None,
        *,
        kind: str = "cpu",
        clock: Callable[[], float] = time.perf_counter,
        keeper: NodeKeeper | None = None,
    ) -> None:
        self._address = address
        self._num_workers = None if num_workers is None else read_whole("num_workers", num_workers)
        self._kind = kind
        self._clock = clock
        self._keeper = keeper
        self._pool: WorkerPool | None = None
        self._is_ours = False
        """Whether this executor has connected to the cluster."""

    @property
    def kind(self) -> str:
        """What its workers train on, whatever this machine has."""
        return self._kind

    def list_devices(self) -> Sequence[Device]:
        """Return the CPUs or GPUs that the cluster has for this executor now."""
        return [worker.device for worker in self._open().workers]

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way."""
        pool = self._open()
        with TemporaryFolder() as folder:
            sent = _SentBriefs(Briefs(conductor, folder), pool)
            try:
                self._run(conductor, pool, sent)
            except BaseException:
                pool.forget(sent.files)
                pool.close()
                self._pool = None
                raise
            pool.forget(sent.files)

    def close(self) -> None:
        """End all workers, and the cluster if this executor has started it."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._is_ours:
            disconnect()
            self._is_ours = False

    def _open(self) -> WorkerPool:
        if self._pool is None:
            self._is_ours |= connect(self._address, self._num_workers)
            self._pool = WorkerPool(self._kind, self._num_workers)
            try:
                self._pool.gather(is_patient=self._keeper is None)
            except BaseException:
                self.close()
                raise
        return self._pool

    def _run(self, conductor: Conductor, pool: WorkerPool, sent: _SentBriefs) -> None:
        self._place(conductor, pool, sent)
        while pool.is_busy or self._awaits_workers(conductor, pool):
            if not pool.workers:
                pool.await_worker(is_patient=self._keeper is None)
            has_news = pool.look()
            if draining := pool.see_draining():
                conductor.regroup(draining)
                has_news = True
            while gone := pool.find_gone():
                self._lose(gone[0], conductor, pool, Death("its node is gone", is_out_of_memory=False))
                has_news = True
            heard = pool.wait()
            if heard is not None:
                has_news |= self._hear(heard, conductor, pool, sent)
            if has_news or not pool.is_busy or (self._keeper is not None and self._keeper.is_due()):
                self._place(conductor, pool, sent)

    def _awaits_workers(self, conductor: Conductor, pool: WorkerPool) -> bool:
        """Tell whether there is nobody to train, somebody is to come, and the run need not end before."""
        if self._keeper is None:
            return not pool.workers and not conductor.is_to_end()
        return not pool.list_idle() and self._keeper.is_waiting() and not conductor.is_to_end()

    def _place(self, conductor: Conductor, pool: WorkerPool, sent: _SentBriefs) -> None:
        """Start what the conductor has for idle devices."""
        self._follow(conductor, pool)
        if self._keeper is not None:
            self._keeper.tend(conductor, pool)
        idle = pool.list_idle()
        for placement in conductor.place(idle) if idle else ():
            sent.start(placement)

    def _follow(self, conductor: Conductor, pool: WorkerPool) -> None:
        """Have the devices that the conductor wants; what is to go leaves when what trains there has left."""
        limit = ALL if self._num_workers is None else COUNTED.format(self._num_workers)
        seen = replace(pool.show(), fixed="" if self._keeper is None else KEPT, limit=limit)
        gone = pool.want(conductor.want_devices(seen))
        if gone:
            conductor.regroup(gone)
        pool.part_from_unwanted()

    def _hear(self, worker: RayWorker, conductor: Conductor, pool: WorkerPool, sent: _SentBriefs) -> bool:
        """Take in what a worker says, or that it is gone; tell whether anything else could be placed after that."""
        said = worker.take()
        if isinstance(said, Death):
            self._lose(worker, conductor, pool, said)
            return True
        answers: list[Message] = []
        has_news = False
        for message in said:
            if has_news:
                self._place(conductor, pool, sent)
            has_news = self._take_in(message, worker, conductor, answers)
        if worker.placement is not None:
            worker.exchange(answers)
        return has_news

    def _take_in(self, message: Message, worker: RayWorker, conductor: Conductor, answers: list[Message]) -> bool:
        """Take in one message, and add what is answered; tell whether anything else could be placed after it."""
        if isinstance(message, Raised):
            raise message.error
        if isinstance(message, Ready):  # it has its placement already, and begins
            return False
        if isinstance(message, FileRequest):
            answers.append(answer_request(message))
            return False
        if isinstance(message, Idle):
            worker.placement = None
            return True
        assert isinstance(message, Told)
        if self._keeper is not None:
            self._keeper.hear(message.event)
        order = conductor.hear(replace(message.event, device=worker.device.name, time_s=self._clock()))
        if message.awaits_order:
            answers.append(worker.answer(order))
        return not isinstance(message.event, QUIET)

    def _lose(self, worker: RayWorker, conductor: Conductor, pool: WorkerPool, death: Death) -> None:
        """Give up a worker, and all that train its trial with it as ranks."""
        placement = worker.placement
        for each in pool.workers:
            if each is worker or (placement is not None and each.placement is placement):
                pool.drop(each)
                conductor.regroup({each.device.name})
        if placement is not None:
            name = worker.device.name
            reason = f"the Ray worker {name} that trained it was lost: {death.reason}"
            lost = Lost(key=placement.key, reason=reason, is_out_of_memory=death.is_out_of_memory)
            conductor.hear(replace(lost, device=name, time_s=self._clock()))


class _SentBriefs:
    """What was sent to the workers of one run; a data file goes into the object store once."""

    def __init__(self, briefs: Briefs, pool: WorkerPool) -> None:
        self._briefs = briefs
        self._pool = pool
        self._refs: dict[str, Ref] = {}

    @property
    def files(self) -> list[str]:
        """The data files that workers may have copied."""
        return list(self._refs)

    def start(self, placement: Placement) -> None:
        """Have a placement run on its first device, or on all as ranks."""
        workers = [self._pool.find(name) for name in placement.devices]
        if placement.as_ranks:
            meeting = workers[0].actor.name_meeting.remote()
            for rank, worker in enumerate(workers):
                self._start(worker, RunMessage(placement, rank), meeting)
        else:  # only devices on the same node share its memory, and can lend their threads
            near = tuple(worker.device.name for worker in workers if worker.node == workers[0].node)
            num_near = self._pool.count_neighbours(workers[0])
            self._start(workers[0], RunMessage(replace(placement, devices=near, num_devices=num_near)), "")
            # The conductor believes that all devices of the placement are busy. A far one must not be handed out again.
            workers[0].placement = placement

    def _start(self, worker: RayWorker, run: RunMessage, meeting: Ref) -> None:
        brief, packed = self._briefs.find(run.placement.study)
        messages: list[Message] = []
        files: dict[str, Ref] = {}
        if brief.study not in worker.studies:
            worker.studies.add(brief.study)
            is_home = self._pool.is_home(worker)
            has_disk = is_home or is_on_network(brief.states.url)
            messages.append(BriefMessage(brief.study, packed, has_disk=has_disk))
            path = find_data_file(packed)
            if path is not None and not is_home:
                self._pool.note_copy(worker.node)
                files = self._put(path)
        worker.start(messages, run, brief.space, files=files, meeting=meeting)

    def _put(self, path: str) -> dict[str, Ref]:
        if path not in self._refs:
            self._refs[path] = self._pool.put(path)
        return {path: self._refs[path]}
