"""The executor of whoever has chosen none: this process at first, all devices of the machine when it takes longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headwater.conduct.protocol import Conductor
from headwater.execute.inline import InlineExecutor
from headwater.execute.processes import ProcessExecutor
from headwater.trials import Device

PATIENCE_S = 10.0
"""So long does this process train alone: most studies of small models are over by then, and a worker process takes a
few seconds to start. One that will be over in as long again stays here too."""


class AutoExecutor:
    """Trains in this process, and goes on in a process for each device if that takes too long.

    Nothing is lost by the change: what trains at that moment leaves at its next report, with its state saved.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        kind: str = "cpu",
        clock: Callable[[], float] = time.perf_counter,
        patience_s: float | None = None,
    ) -> None:
        self._here = f"{kind}:0"
        self._inline = InlineExecutor(Device(name=self._here, kind=kind), clock)
        self._processes = ProcessExecutor(num_workers, kind=kind, clock=clock)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s

    @property
    def is_inline(self) -> bool:
        """Whether all that was run so far has run in this process."""
        return not self._processes.has_started

    def list_devices(self) -> Sequence[Device]:
        """Return all devices of the machine."""
        return self._processes.list_devices()

    def run(self, conductor: Conductor) -> None:
        """Run here until it is over, has taken too long, or is wished to have other devices than this process is."""
        since = time.perf_counter()
        has_ended = False

        def is_over() -> bool:
            nonlocal has_ended
            is_wished = self._processes.follow(conductor)
            is_one = [device.name for device in self.list_devices()] == [self._here]
            if not has_ended and not is_one and (is_wished or time.perf_counter() - since > self._patience_s):
                left_s = conductor.foresee()
                has_ended = is_wished or left_s is None or left_s > self._patience_s
            return has_ended

        self._processes.follow(conductor)
        if not self._inline.run_until(conductor, is_over):
            self._processes.run(conductor)

    def close(self) -> None:
        """Let the processes go, if there are any."""
        self._processes.close()
