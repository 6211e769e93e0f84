"""Choosing the number of threads of what trains alone, by the steps that a watcher is shown."""

from __future__ import annotations

from headwater.report import Pulse, Watcher


class ThreadWatcher:
    """Lets a model that trains alone have as many threads as are fast, while another watcher shows it."""

    def __init__(self, watcher: Watcher, num_threads: int) -> None:
        from headwater.train.threads import ThreadChooser

        self.start, self.tell, self.end = watcher.start, watcher.tell, watcher.end
        self._watcher = watcher
        self._chooser = ThreadChooser(num_threads)
        self._num_steps = 0

    def pulse(self, pulse: Pulse) -> None:
        """Pass it on, and tell steps from reports."""
        self._watcher.pulse(pulse)
        if pulse.num_lane_steps > self._num_steps:
            self._num_steps = pulse.num_lane_steps
            self._chooser.step()
