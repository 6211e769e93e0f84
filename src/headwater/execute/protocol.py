"""The contract of whatever runs placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.conduct.protocol import Conductor
from headwater.trials import Device


class Executor(Protocol):
    """Runs placements on the devices that it has, and decides nothing.

    It asks the conductor what idle devices are to do at the beginning and after every event, tells it what happens, in
    order and stamped with device and time, and gives whoever reported the order that comes back.
    """

    def list_devices(self) -> Sequence[Device]:
        """Return what can train now."""

    def run(self, conductor: Conductor) -> None:
        """Run until the conductor has nothing more to place and nothing is under way.

        What is raised on the way, by the conductor or because a study is set up wrongly, ends everything that runs.
        """

    def close(self) -> None:
        """Let go of all that outlives a run, such as worker processes; the next run starts them anew."""
