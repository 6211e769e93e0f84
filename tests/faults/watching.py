"""What is seen of a study from outside: which epochs its workers have trained, and which of its processes are left."""

from __future__ import annotations

import json
import os
import select
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from headwater.conduct.protocol import Conductor
from headwater.execute import Executor
from headwater.plan.jobs import Part
from headwater.trials import Brief, Device, DevicePool, Event, Lane, Order, Placement, Reported

TRAINED = "trained"
"""The file that has a line for every report, of all runs of the study."""
PARTING_S = 60.0
"""So long may processes take to end whose study is gone."""


class WatchedExecutor:
    """Runs what it is given on another executor, and writes down every report."""

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor = executor
        self._file = folder / TRAINED

    def list_devices(self) -> Sequence[Device]:
        return self._executor.list_devices()

    def run(self, conductor: Conductor) -> None:
        self._executor.run(_WatchedConductor(conductor, self._file))

    def close(self) -> None:
        self._executor.close()


class _WatchedConductor:
    def __init__(self, conductor: Conductor, file: Path) -> None:
        self._conductor = conductor
        self._file = file
        self._studies: dict[int, str] = {}

    def brief(self, study: str) -> Brief:
        return self._conductor.brief(study)

    @property
    def name(self) -> str:
        return self._conductor.name

    def list_lanes(self) -> Sequence[Lane] | None:
        return self._conductor.list_lanes()

    def is_to_end(self) -> bool:
        return self._conductor.is_to_end()

    @property
    def part(self) -> Part:
        return self._conductor.part

    def foresee(self) -> float | None:
        return self._conductor.foresee()

    def want_devices(self, pool: DevicePool) -> Sequence[str]:
        return self._conductor.want_devices(pool)

    def regroup(self, devices: Collection[str] | None = None) -> None:
        self._conductor.regroup(devices)

    def place(self, idle: Sequence[Device]) -> Sequence[Placement]:
        placements = self._conductor.place(idle)
        self._studies |= {placement.key: placement.study for placement in placements}
        return placements

    def hear(self, event: Event) -> Order | None:
        if isinstance(event, Reported):
            lines = [[self._studies[event.key], report.number, report.epoch] for report in event.reports]
            with self._file.open("a") as file:
                file.writelines(f"\n{json.dumps(line)}" for line in lines)
        return self._conductor.hear(event)


def count_again(folder: Path) -> int:
    """Return how many epochs were trained more than once, of the trial that has lost most."""
    if not (folder / TRAINED).exists():
        return 0
    lines = (folder / TRAINED).read_text().splitlines()
    trained = Counter(line for line in lines if line.endswith("]"))  # a fault may have cut one short
    lost: Counter[tuple[str, int]] = Counter()
    for line, count in trained.items():
        study, number, _ = json.loads(line)
        lost[study, number] += count - 1
    return max(lost.values(), default=0)


def await_parting(study_pid: int, timeout_s: float = PARTING_S) -> str:
    """Wait until the worker processes of a study that is gone have ended; say which are left if that takes too long."""
    left = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if any(b"work_for_parent" in word for word in words) and str(study_pid).encode() in words:
                number = os.pidfd_open(int(path.name))
                ended, _, _ = select.select([number], [], [], timeout_s)
                os.close(number)
                left += [] if ended else [path.name]
        except OSError:  # it has ended meanwhile
            continue
    return f"the worker processes {left} are left" if left else ""
