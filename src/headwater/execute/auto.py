"""The default executor: this process at first, and worker processes on all devices if the study takes longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from headwater.conduct.protocol import Conductor
from headwater.errors import StudyError
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.trials import Device, Noted

PATIENCE_S = 4.0
"""Worker processes are started if the rest of the study takes longer than this in this process."""
WARM_UP_S = 0.5
"""The first steps of a process take about so much longer than later ones. Worker processes are not started before."""
CROWDED = 0.5
"""A machine is crowded if this process computes in less than this share of the time, as it waits for a core."""
MOVE_S = 1.0
"""The rest of a study moves to workers that are ready if it takes longer than this in this process."""


class AutoExecutor:
    """Trains in this process, and starts worker processes in the background if the study takes long.

    The study moves when the workers have loaded it. Trials that have begun move with their checkpoints; a group that
    cannot continue from checkpoints trains to its end in this process first.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        kind: str = "cpu",
        clock: Callable[[], float] = time.perf_counter,
        patience_s: float | None = None,
    ) -> None:
        self._here = Device(name=f"{kind}:0", kind=kind)
        self._inline = InlineExecutor(self._here, clock)
        self._processes = ProcessExecutor(num_workers, kind=kind, clock=clock)
        self._clock = clock
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._since_s = self._since_cpu_s = 0.0
        self._is_wished = False
        """Whether somebody wished for other devices, which this process is not."""
        self._is_starting = False
        self._is_refused = False
        """Whether the study cannot move to processes."""

    @property
    def is_inline(self) -> bool:
        """Whether all that was run so far has run in this process."""
        return not self._processes.has_started

    def list_devices(self) -> Sequence[Device]:
        """Return all devices of the machine."""
        return self._processes.list_devices()

    def run(self, conductor: Conductor) -> None:
        """Run here until the study is over, or until it moves to worker processes."""
        self._since_s, self._since_cpu_s = time.perf_counter(), time.process_time()
        self._is_wished = self._is_starting = self._is_refused = False
        self._processes.follow(conductor)
        wants_leave = partial(self._wants_leave, conductor)
        if self._inline.run_until(conductor, wants_leave, partial(self._is_over, conductor)):
            self._processes.close()
        else:
            self._processes.run(conductor)

    def close(self) -> None:
        """End the processes, if there are any."""
        self._processes.close()

    def _wants_leave(self, conductor: Conductor) -> bool:
        self._is_wished |= self._processes.follow(conductor)
        return self._is_to_start(conductor) or self._is_to_move(conductor)

    def _is_over(self, conductor: Conductor, study: str) -> bool:
        self._is_wished |= self._processes.follow(conductor)
        if self._is_to_start(conductor):
            self._start(conductor, study)
        return self._is_to_move(conductor)

    def _is_to_start(self, conductor: Conductor) -> bool:
        """Tell whether it is time to start processes. Between placements only: while it trains, code is rewritten."""
        if self._is_starting or self._is_refused or self._is_alone():
            return False
        has_waited = self._count_busy() > min(WARM_UP_S, self._patience_s)
        return has_waited and self._outlasts(conductor, self._patience_s)

    def _is_to_move(self, conductor: Conductor) -> bool:
        if self._is_refused or self._is_alone():
            return False
        if self._is_wished:
            return True
        if not self._is_starting or not self._processes.is_prepared():
            return False
        if (fault := self._processes.find_fault()) is not None:
            self._refuse(conductor, fault)
            return False
        return self._outlasts(conductor, min(MOVE_S, self._patience_s))

    def _is_alone(self) -> bool:
        return [device.name for device in self.list_devices()] == [self._here.name]

    def _start(self, conductor: Conductor, study: str) -> None:
        try:
            self._processes.prepare(conductor, study)
            self._is_starting = True
        except StudyError as error:
            self._refuse(conductor, error)

    def _refuse(self, conductor: Conductor, reason: BaseException) -> None:
        """Stay in this process, which is always right, and say why."""
        self._is_refused, self._is_starting = True, False
        self._processes.close()
        text = f"the study stays in this process: {reason}"
        conductor.hear(Noted(key=-1, text=text, device=self._here.name, time_s=self._clock()))

    def _outlasts(self, conductor: Conductor, seconds: float) -> bool:
        """Tell whether the rest of the study takes longer than this.

        Where nobody knows how long, as trials pause, it does on a machine with idle cores. On a crowded machine the
        rest is taken to be as long as what is done.
        """
        left_s, busy_s = conductor.foresee(), self._count_busy()
        share = busy_s / (time.perf_counter() - self._since_s)
        if left_s is None:
            return max(busy_s - seconds, share - CROWDED) > 0
        steady = max(busy_s - min(WARM_UP_S, self._patience_s), 0.0) / max(busy_s, 1e-9)
        return left_s * share * steady > seconds

    def _count_busy(self) -> float:
        """Return the seconds since the start in which this process has computed.

        On a crowded machine the others are spent waiting for a core, and more processes would wait too. With a GPU,
        all seconds count.
        """
        seconds = time.perf_counter() - self._since_s
        return min(time.process_time() - self._since_cpu_s, seconds) if self._here.kind == "cpu" else seconds
