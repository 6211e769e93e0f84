"""Studies on two cores, one of which others keep busy: when each ends, by two ways to share them.

Each worker process stays on a core of its own. On the second core two endless loops run beside it, so that it gets
about a third. Nobody says how fast they are: that is seen in the first epochs. What a study is given it gives back at a
report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import fmean

import torch
from kind_shares import Contender, Goal, share_kinds
from torch import nn

import headwater as hw
from headwater.conduct.limits import Limits
from headwater.execute import ProcessExecutor
from headwater.stage import OpenStudy, RunSettings
from headwater.train.machine import describe_device
from headwater.train.process_settings import read_process_settings
from headwater.trials import (
    Brief,
    Deadline,
    Device,
    DevicePool,
    Ended,
    Event,
    Lane,
    Order,
    Placement,
    Reported,
    Started,
)

NUM_RIVALS = 2
KINDS = {"cpu:0": "full", "cpu:1": "throttled"}
SPECS = ((6, 6, 8), (2, 3, 4), (8, 5, 8), (3, 3, 8), (4, 4, 8), (2, 4, 4), (5, 3, 4), (3, 5, 8))
"""Of each study: trials, epochs and steps of an epoch in hundreds."""
SPREAD_S = 5.0
"""Studies come within so many seconds."""


def pin() -> None:
    """Keep this process on the core of its device, whose name it was started with."""
    cores = sorted(os.sched_getaffinity(os.getppid()))
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in KINDS:
        os.sched_setaffinity(0, {cores[int(name.partition(":")[2]) % len(cores)]})


def train(trial: hw.Trial) -> None:
    """Train a small model; an epoch of it takes as long as its configuration says."""
    pin()
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    model = trial.prepare_model(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = trial.prepare_optimizer(torch.optim.SGD, model, lr=trial.config["lr"])
    for _ in trial.epochs(trial.config["num_epochs"]):
        for _ in range(100 * trial.config["hundreds"]):
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
        trial.report(loss=loss)


@dataclass(slots=True)
class QueuedStudy:
    """A study that waits or trains, and what was seen of it."""

    id: str
    opened: OpenStudy
    arrival_s: float
    num_wanted: int
    epochs_left: float
    hundreds: int
    """How many hundred steps an epoch has."""
    epoch_s: dict[str, float] = field(default_factory=dict)
    """By kind of device, as last seen."""
    end_s: float | None = None


class Queue:
    """The conductor of several studies; which study each device is for is decided anew whenever one is asked for."""

    name = "queue"

    def __init__(self, studies: Sequence[QueuedStudy], clock: Deadline, *, is_fifo: bool) -> None:
        self._studies = studies
        self._clock = clock.clock
        self._begin_s = clock.begin_s
        self._is_fifo = is_fifo
        self._owners: dict[int, QueuedStudy] = {}
        self._last: dict[str, QueuedStudy] = {}
        """Who had each device last."""
        self._last_s: dict[int, float] = {}
        """When each placement has begun or reported last."""

    @property
    def now_s(self) -> float:
        return self._clock() - self._begin_s

    def brief(self, study: str) -> Brief:
        return next(one for one in self._studies if one.opened.name == study).opened.conductor.brief(study)

    def place(self, idle: Sequence[Device]) -> list[Placement]:
        active = [one for one in self._studies if one.end_s is None and one.arrival_s <= self.now_s]
        idle = [Device(name=device.name, kind=KINDS[device.name]) for device in idle]
        placements: list[Placement] = []
        for study, devices in self._share(active, idle):
            for device in devices:  # whoever had it need not wait for it
                last = self._last.get(device.name)
                if last is not None and last is not study and last.end_s is None:
                    last.opened.conductor.regroup({device.name})
            found = study.opened.conductor.place(devices) if devices else []
            self._owners |= {placement.key: study for placement in found}
            self._last |= {name: study for placement in found for name in placement.devices}
            placements += found
            used = {name for placement in found for name in placement.devices}
            idle = [device for device in idle if device.name not in used]
        return placements

    def _share(
        self, active: Sequence[QueuedStudy], idle: Sequence[Device]
    ) -> Iterator[tuple[QueuedStudy, list[Device]]]:
        """Yield studies with the devices that are theirs, and then again with what those leave idle."""
        if not self._is_fifo and active:
            wanted = self._solve(active)
            self._take_back(wanted)
            for study in active:
                yield study, [device for device in idle if wanted.get(device.name) is study]
        left = {device.name for device in idle}
        for study in sorted(active, key=lambda one: one.arrival_s if self._is_fifo else one.epochs_left):
            yield study, [device for device in idle if device.name in left and device.name not in self._busy]

    @property
    def _busy(self) -> set[str]:
        return {name for one in self._studies for name in one.opened.conductor.devices}

    def _solve(self, active: Sequence[QueuedStudy]) -> dict[str, QueuedStudy]:
        contenders = [
            Contender(
                key=one.id,
                rates={kind: 1 / self._foresee(one, kind) for kind in KINDS.values()},
                most_devices=float(one.num_wanted),
                work_left=max(one.epochs_left, 0.5),
            )
            for one in active
        ]
        found = share_kinds(contenders, dict.fromkeys(KINDS.values(), 1), Goal.SOONEST)
        names = {kind: name for name, kind in KINDS.items()}
        return {names[kind]: one for one in active for kind, share in found.shares[one.id].items() if share > 0.5}

    def _foresee(self, study: QueuedStudy, kind: str) -> float:
        """Return how long an epoch takes there: as seen, or as others say of the other kind; 1 where nobody knows."""
        if kind in study.epoch_s:
            return study.epoch_s[kind]
        other = next((seen for seen in study.epoch_s), None)
        if other is None:
            return 1.0
        ratios = [one.epoch_s[kind] / one.epoch_s[other] for one in self._studies if {kind, other} <= {*one.epoch_s}]
        return study.epoch_s[other] * (fmean(ratios) if ratios else 1.0)

    def _take_back(self, wanted: dict[str, QueuedStudy]) -> None:
        """Have studies leave, at their next report, devices that are to be somebody else's."""
        for name, study in wanted.items():
            for other in self._studies:
                if other is not study and other.end_s is None and name in other.opened.conductor.devices:
                    other.opened.conductor.regroup({name})

    def hear(self, event: Event) -> Order | None:
        study = self._owners[event.key]
        if isinstance(event, Reported):
            study.epochs_left -= len(event.reports)
            study.epoch_s[KINDS[event.device]] = event.time_s - self._last_s[event.key]
        if isinstance(event, Reported | Started):
            self._last_s[event.key] = event.time_s
        order = study.opened.conductor.hear(event)
        if isinstance(event, Ended) and study.epochs_left <= 0 and not study.opened.conductor.is_running:
            study.end_s = self.now_s
        return order

    def list_lanes(self) -> list[Lane] | None:
        return None

    def foresee(self) -> float | None:
        return None

    def want_devices(self, pool: DevicePool) -> tuple[str, ...]:
        return pool.names

    def regroup(self, devices: Collection[str] | None = None) -> None:
        for one in self._studies:
            one.opened.conductor.regroup(devices)


def print_real(num_rounds: int) -> None:
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))[:2]
    print(f"{len(SPECS)} studies within {SPREAD_S:.0f} s on a full core and one with {NUM_RIVALS} rivals\n")
    print("| round | fifo: mean completion, s | least total completion, s | gain | ms of a step: full, throttled |")
    print("|---|---|---|---|---|")
    executor = ProcessExecutor(2)
    gains = []
    with keeping_busy(cores[-1]):
        try:
            run_queue(executor, Random(0), is_fifo=True, specs=SPECS[3:5])  # processes start, and import torch
            for place in range(num_rounds):
                ways = [True, False] if place % 2 == 0 else [False, True]
                found = {is_fifo: run_queue(executor, Random(place), is_fifo=is_fifo) for is_fifo in ways}
                gains.append(found[True][0] / found[False][0])
                full, slow = (fmean(found[False][1][kind]) for kind in ("full", "throttled"))
                means = f"{found[True][0]:.1f} | {found[False][0]:.1f}"
                print(f"| {place} | {means} | {gains[-1]:.2f} | {full:.2f}, {slow:.2f} |", flush=True)
        finally:
            executor.close()
    print(f"\ngain: {fmean(gains):.2f} on the mean, {min(gains):.2f} at least")


def run_queue(
    executor: ProcessExecutor, rng: Random, *, is_fifo: bool, specs: Sequence[tuple[int, int, int]] = SPECS
) -> tuple[float, dict[str, list[float]]]:
    """Run studies in an order that is drawn; return their mean completion, and ms of a step by kind of device."""
    order = rng.sample(range(len(specs)), len(specs))
    arrivals = sorted(rng.uniform(0, SPREAD_S) for _ in specs)
    arrivals[0] = 0.0
    deadline = Deadline.start(None)
    settings = RunSettings(
        num_devices=2,
        kind=describe_device(torch.device("cpu"), 1),
        shares_states=True,
        process_settings=read_process_settings(),
        keys=count(),
    )
    studies = []
    for place, arrival_s in zip(order, arrivals, strict=True):
        num_trials, num_epochs, hundreds = specs[place]
        study = hw.Study(
            train,
            space={"lr": hw.loguniform(1e-4, 1e-2), "num_epochs": num_epochs, "hundreds": hundreds},
            metric="loss",
            name=f"study-{place}",
            storage=None,
            lanes=1,
            packing=None,
            max_epochs=num_epochs,
            allocation="fifo" if is_fifo else "ours",
        )
        opened = OpenStudy(study, Limits(num_trials=num_trials, deadline=deadline), settings, is_new=True)
        opened.conductor.begin()
        studies.append(
            QueuedStudy(opened.name, opened, arrival_s, num_trials, float(num_trials * num_epochs), hundreds)
        )
    queue = Queue(studies, deadline, is_fifo=is_fifo)
    while any(study.end_s is None for study in studies):
        executor.run(queue)
        if any(study.end_s is None and study.arrival_s <= queue.now_s - 1.0 for study in studies):
            failed = [study.opened.finish() for study in studies]
            raise SystemExit(f"a study has not ended: {[trial.error for one in failed for trial in one.trials]}")
        time.sleep(0.05)  # until the next study comes: nothing trains, so nothing can be waited for
    for study in studies:
        study.opened.finish()
        study.opened.close()
    epochs = {
        kind: [10 * one.epoch_s[kind] / one.hundreds for one in studies if kind in one.epoch_s]
        for kind in KINDS.values()
    }
    print(f"{'fifo' if is_fifo else 'ours'}: {queue.now_s:.1f} s", file=sys.stderr)
    return fmean((study.end_s or 0.0) - study.arrival_s for study in studies), epochs


@contextmanager
def keeping_busy(core: int) -> Iterator[None]:
    """Have endless loops run on a core."""
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() == {os.getpid()}: sum(range(10000))"
    rivals = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(NUM_RIVALS)]
    try:
        yield
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
