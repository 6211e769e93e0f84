"""The workers on a Ray cluster.

A worker is an actor in a placement group of its own. To each that is busy one call is open, which carries what the
worker is to hear and returns what it says next; so one wait hears them all, and no node must reach back. Ray is never
asked to start anything again: what is lost goes with its placement group, and another is asked for.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headwater.errors import StudyError
from headwater.execute.data_copies import DataCopies
from headwater.execute.lines import QueueLine
from headwater.execute.ray_connection import Ref, import_ray, list_draining_nodes, name_node
from headwater.execute.serving import Answer, BriefMessage, Message, Raised, RunMessage, encode_groups, serve
from headwater.space import Space
from headwater.trials import Device, DevicePool, Order, Placement

LOOK_EVERY_S = 1.0
"""So often is it seen which nodes are there."""
LOOK_SOON_S = 0.05
"""So soon is it seen whether a placement group that was asked for is there; then ever more rarely."""
GATHER_S = 5
"""So long may the workers of a run take to get their places, before it begins with those that have them."""
PLACE_S = 60
"""So long may a run be without any worker."""
PARTING_S = 5.0
"""So long may workers take to clean up."""

Files: TypeAlias = Mapping[str, Ref]
"""What is in files of the study, by their names there."""


class WorkerPool:
    """The workers that the cluster has room for, and those that were asked for."""

    def __init__(self, kind: str, num_workers: int | None) -> None:
        self._ray = import_ray()
        self._kind = kind
        self._resource = "CPU" if kind == "cpu" else "GPU"
        self._num_workers = num_workers
        self._workers: dict[str, RayWorker] = {}
        self._asked: list[Ref] = []
        """The placement groups that are not there yet."""
        self._nodes: dict[str, Mapping[str, Any]] = {}  # Any: as Ray describes nodes
        self._leaving: set[str] = set()
        """The names of nodes that are about to go, and are given nothing new."""
        self._draining: set[str] = set()
        """The ids of those of them that Ray says drain."""
        self._begun: set[str] = set()
        """Those that have begun to drain, and nobody was told."""
        self._unwanted: dict[str, str] = {}
        """The devices that somebody wished to go, left or not, and their nodes."""
        self._copied: set[str] = set()
        """The nodes that have copies of files of this process."""
        self._look_s = 0.0
        self._pause_s = LOOK_SOON_S
        is_client = self._ray.util.client.ray.is_connected()
        self._home = "" if is_client else self._ray.get_runtime_context().get_node_id()

    @property
    def workers(self) -> list[RayWorker]:
        """Those that have their places."""
        return list(self._workers.values())

    @property
    def is_busy(self) -> bool:
        """Whether anything runs."""
        return any(worker.call is not None for worker in self._workers.values())

    def list_idle(self) -> list[Device]:
        """Return the devices that nothing runs on."""
        shut = self._list_busy() | self._unwanted.keys()
        staying = [worker for worker in self._workers.values() if self._name(worker.node) not in self._leaving]
        return [worker.device for worker in staying if worker.device.name not in shut]

    def show(self) -> DevicePool:
        """Return the devices that there are, and those that somebody wished to go."""
        return DevicePool(
            names=tuple(name for name in self._workers if name not in self._unwanted),
            leaving=tuple(name for name in self._unwanted if name in self._workers),
            spare=tuple(name for name in self._unwanted if name not in self._workers),
            kind=self._kind,
        )

    def want(self, names: Collection[str]) -> list[str]:
        """Have these of the devices that are shown, and no others; return which are to go."""
        gone = [name for name in self._workers if name not in names and name not in self._unwanted]
        again = [name for name in self._unwanted if name in names]
        self._unwanted |= {name: self._workers[name].node for name in gone}
        for name in again:
            del self._unwanted[name]
        if again:
            self._look_now()
        return gone

    def part_from_unwanted(self) -> None:
        """Give up the devices that are to go and on which nothing trains any more.

        A node that drains ends when nothing is left there.
        """
        busy = self._list_busy()
        for worker in self.workers:
            name = worker.device.name
            if name not in busy and (name in self._unwanted or worker.node in self._draining):
                self.drop(worker)

    def see_draining(self) -> list[str]:
        """Give nodes that have begun to drain nothing new; return their devices."""
        begun, self._begun = self._begun, set()
        return self.let_go({self._name(node) for node in begun}) if begun else []

    def see_nodes(self) -> dict[str, bool]:
        """Return which nodes have joined, by what the cluster that they come from calls them, and whether they work."""
        busy = {self._name(worker.node) for worker in self._workers.values() if worker.placement is not None}
        return {name: name in busy for name in map(self._name, self._nodes)}

    def let_go(self, nodes: Collection[str]) -> list[str]:
        """Give nodes of these names nothing new; return their devices."""
        self._leaving.update(nodes)
        return [worker.device.name for worker in self._workers.values() if self._name(worker.node) in nodes]

    def part_from(self, node: str) -> None:
        """Give up all workers of a node."""
        for worker in [one for one in self._workers.values() if self._name(one.node) == node]:
            self.drop(worker)

    def find(self, name: str) -> RayWorker:
        """Return the worker of a device."""
        return self._workers[name]

    def is_home(self, worker: RayWorker) -> bool:
        """Tell whether a worker is on the node of this process, and has its files."""
        return worker.node == self._home

    def count_neighbours(self, worker: RayWorker) -> int:
        """Count the workers on the node of one, itself among them."""
        return sum(other.node == worker.node for other in self._workers.values())

    def gather(self, *, is_patient: bool = True) -> None:
        """Ask for all workers, and wait until most of them have their places, if that is wanted."""
        self._look_now()
        if not is_patient:
            return
        end_s = time.monotonic() + GATHER_S
        for group in self._asked:
            group.wait(max(0, round(end_s - time.monotonic())))
        self._look_now()
        self.await_worker()

    def await_worker(self, *, is_patient: bool = True) -> None:
        """Wait until there is a worker; or for a second, by whoever sees himself to it that one comes.

        Raises:
            StudyError: The cluster has no room for one.
        """
        end_s = time.monotonic() + PLACE_S
        while not self._workers:
            if time.monotonic() > end_s:
                total, free = (found.get(self._resource, 0) for found in self._count())
                raise StudyError(
                    f"no worker found a place in {PLACE_S} s: each needs a {self._resource}, and of the {total:g} of "
                    f"the Ray cluster {free:g} are free; add a node, or run again when others have left it"
                )
            self._asked[0].wait(1)
            self._look_now()
            if not is_patient:
                return

    def look(self) -> bool:
        """See from time to time which nodes and placement groups are there; tell whether there are more workers."""
        if time.monotonic() < self._look_s:
            return False
        num_before = len(self._workers)
        self._look_now()
        return len(self._workers) > num_before

    def find_gone(self) -> list[RayWorker]:
        """Return the workers whose nodes are gone, whatever Ray says of their calls."""
        return [worker for worker in self._workers.values() if worker.node not in self._nodes]

    def wait(self) -> RayWorker | None:
        """Wait until a worker says something, or it is time to look; all are heard in turn."""
        calls = {worker.call: worker for worker in self._workers.values() if worker.call is not None}
        if not calls:
            return None
        ready, _ = self._ray.wait(list(calls), timeout=max(0.0, self._look_s - time.monotonic()))
        if not ready:
            return None
        worker = calls[ready[0]]
        self._workers[worker.device.name] = self._workers.pop(worker.device.name)
        return worker

    def drop(self, worker: RayWorker) -> None:
        """Give up a worker with its place, and ask for another."""
        del self._workers[worker.device.name]
        worker.close()
        self._look_now()
        self._pause_s = LOOK_SOON_S

    def put(self, path: str) -> Ref:
        """Put what is in a file into the object store, from where every node takes it once."""
        return self._ray.put(np.asarray(np.memmap(path, np.uint8, "r")))

    def note_copy(self, node: str) -> None:
        """Take note that files are copied to a node."""
        self._copied.add(node)

    def forget(self, files: Sequence[str]) -> None:
        """Let the workers forget a run: what was wished of them, its studies, and the files that were copied."""
        self._unwanted.clear()
        by_node = {worker.node: worker for worker in sorted(self._workers.values(), key=lambda one: one.is_started)}
        calls = [by_node[node].actor.forget.remote(files) for node in self._copied & by_node.keys()]
        if calls:
            self._ray.wait(calls, num_returns=len(calls), timeout=PARTING_S)
        self._copied.clear()
        for worker in self._workers.values():
            worker.studies.clear()

    def close(self) -> None:
        """Give up all workers and places."""
        for worker in self._workers.values():
            worker.close()
        self._remove(self._asked)
        self._workers, self._asked = {}, []

    def _list_busy(self) -> set[str]:
        placements = [worker.placement for worker in self._workers.values() if worker.placement is not None]
        return {name for placement in placements for name in placement.devices}

    def _look_now(self) -> None:
        self._nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        self._unwanted = {name: node for name, node in self._unwanted.items() if node in self._nodes}
        draining = list_draining_nodes() & self._nodes.keys()
        self._begun |= draining - self._draining
        self._draining = draining
        for group in list(self._asked):
            about = self._ray.util.placement_group_table(group)
            if about["state"] == "CREATED":
                self._asked.remove(group)
                node = about["bundles_to_node_id"][0]
                if self._name(node) in self._leaving:
                    self._remove([group])
                else:
                    self._add(group, node)
        num_missing = self._count_wanted() - len(self._workers) - len(self._asked)
        if num_missing > 0:
            self._pause_s = LOOK_SOON_S
        bundles = [{self._resource: 1}]
        self._asked += [self._ray.util.placement_group(bundles, "STRICT_PACK") for _ in range(num_missing)]
        num_kept = len(self._asked) + min(num_missing, 0)
        self._remove(self._asked[max(num_kept, 0) :])
        del self._asked[max(num_kept, 0) :]
        self._look_s = time.monotonic() + (min(self._pause_s, LOOK_EVERY_S) if self._asked else LOOK_EVERY_S)
        self._pause_s *= 2

    def _count(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        return self._ray.cluster_resources(), self._ray.available_resources()

    def _count_wanted(self) -> int:
        num_spare = len(self._unwanted.keys() - self._workers.keys())
        if self._num_workers is not None:
            return max(1, self._num_workers - num_spare)
        staying = [node for name, node in self._nodes.items() if self._name(name) not in self._leaving]
        return max(1, sum(int(node["Resources"].get(self._resource, 0)) for node in staying) - num_spare)

    def _name(self, node: str) -> str:
        about = self._nodes.get(node)
        return node if about is None else name_node(about)

    def _add(self, group: Ref, node: str) -> None:
        host = self._nodes[node]["NodeManagerHostname"] if node in self._nodes else "node"
        names = (f"{host}-{node[:6]}/{self._kind}:{place}" for place in count())
        name = next(name for name in names if name not in self._workers and name not in self._unwanted)
        kind = name_kind(self._kind, self._nodes.get(node, {}).get("Resources", {}))
        self._workers[name] = RayWorker(Device(name=name, kind=kind), node, group)

    def _remove(self, groups: Sequence[Ref]) -> None:
        for group in groups:
            self._ray.util.remove_placement_group(group)


def name_kind(kind: str, resources: Mapping[str, float]) -> str:
    """Return of which kind the devices of a node are: GPUs of unlike types are not equally fast."""
    types = sorted(name.partition(":")[2] for name in resources if name.startswith("accelerator_type:"))
    return kind if kind == "cpu" or not types else f"{kind} {types[0]}"


class Death(NamedTuple):
    """Why a worker says nothing any more."""

    reason: str
    is_out_of_memory: bool
    """Whether that may be it: Ray does not tell how a process ended, and out of memory they end without a word."""


class RayWorker:
    """An actor with its placement group, what it knows, and what it does now."""

    def __init__(self, device: Device, node: str, group: Ref) -> None:
        self.device = device
        self.node = node
        self.placement: Placement | None = None
        self.call: Ref | None = None
        """What returns with the next that it says."""
        self.studies: set[str] = set()
        """The studies whose briefs it has."""
        self._group = group
        self._actor: Ref | None = None
        self._space: Space | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is a process already."""
        return self._actor is not None

    @property
    def actor(self) -> Ref:
        """The actor, which is started when it is first asked for."""
        if self._actor is None:
            ray = import_ray()
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._group)
            share = {"num_cpus": 1} if self.device.kind == "cpu" else {"num_cpus": 0, "num_gpus": 1}
            options = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
            self._actor = ray.remote(_Actor).options(scheduling_strategy=strategy, **share, **options).remote()
        return self._actor

    def start(self, messages: Sequence[Message], run: RunMessage, space: Space, *, files: Files, meeting: Ref) -> None:
        """Have a placement run there, after it has heard these messages."""
        self.placement, self._space = run.placement, space
        run = replace(run, placement=replace(run.placement, groups=encode_groups(run.placement.groups, space)))
        self.call = self.actor.start.remote(messages, run, files, meeting)

    def exchange(self, messages: Sequence[Message]) -> None:
        """Send messages; what comes of them is to be waited for."""
        self.call = self.actor.exchange.remote(messages)

    def answer(self, order: Order | None) -> Answer:
        """Return the answer that carries an order."""
        if order is not None and order.join:
            assert self._space is not None
            order = replace(order, join=encode_groups(order.join, self._space))
        return Answer(order)

    def take(self) -> list[Message] | Death:
        """Return what it said, or why it says nothing any more.

        Raises:
            StudyError: It cannot work.
        """
        ray = import_ray()
        call, self.call = self.call, None
        try:
            said: list[Message] = ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise StudyError(f"the Ray worker {self.device.name} cannot work: {error.cause}") from error
        except ray.exceptions.OutOfMemoryError:
            return Death("Ray has ended its process, for its node ran out of memory", is_out_of_memory=True)
        except ray.exceptions.RayError as error:
            return Death(f"{type(error).__name__}, its process or its node has died", is_out_of_memory=True)
        return said

    def close(self) -> None:
        """End the actor, and give up its place."""
        ray = import_ray()
        with suppress(ray.exceptions.RayError):
            if self._actor is not None:
                ray.kill(self._actor)
            ray.util.remove_placement_group(self._group)


class _Actor:
    """A worker on its node: it trains on a thread of its own, and says what happens to whoever calls."""

    def __init__(self) -> None:
        self._line = QueueLine()
        self._copies = DataCopies()
        threading.Thread(target=_serve, args=(self._line,), daemon=True).start()

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Take messages; return what there is to say, as soon as there is any."""
        return self._line.exchange(messages)

    def start(self, messages: Sequence[Message], run: RunMessage, files: Files, meeting: str) -> list[Message]:
        """Take messages, the files that are sent with them, and what to run; return what there is to say to that."""
        get = import_ray().get
        copies = {name: self._copies.have(name, partial(get, ref)) for name, ref in files.items()}
        briefs = [replace(one, copies=copies) if isinstance(one, BriefMessage) else one for one in messages]
        return self._line.exchange([*briefs, replace(run, meeting=meeting)])

    def name_meeting(self) -> str:
        """Return where this worker can be met by the others that train a trial with it: a free port of its node."""
        address = import_ray().util.get_node_ip_address()
        with socket.create_server((address, 0)) as server:
            return f"tcp://{address}:{server.getsockname()[1]}"

    def forget(self, files: Sequence[str]) -> None:
        """Remove this node's copies of these files."""
        self._copies.remove(files)


def _serve(line: QueueLine) -> None:
    try:
        serve(line)
    except BaseException as error:  # without this thread there is nobody to answer
        line.send(Raised(StudyError(f"{type(error).__name__}: {error}")))
