"""Training only while a pipeline stalls: a gate before each step, for devices that cannot tell who goes first.

The cores of a CPU can: a process of the class SCHED_IDLE runs only while no other wants to. A GPU cannot, so a step is
begun only in a bubble that is expected to last as long as a step takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headwater import devices
from headwater.stalls import LentPage, StallState, read_clock

POLL_S = 2e-4
"""So often is it seen whether the stage waits."""
LOOK_EVERY_S = 1.0
"""So often is it seen whether the pipeline is still there."""


def open_gate(path: Path) -> Callable[[], None]:
    """Return what holds the steps of this process's GPU back; no GPU was there when this was written."""
    return BubbleGate(LentPage(path), devices.synchronize).pass_through


class BubbleGate:
    """Holds a step back until there is a bubble for it.

    Nothing is known of the first step, so it begins in any bubble. A step that fits into no bubble begins with one: it
    would never be taken otherwise, and the host waits for the rest of it.
    """

    def __init__(
        self,
        page: LentPage,
        finish: Callable[[], None],
        clock: Callable[[], float] = read_clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._page = page
        self._finish = finish
        self._clock = clock
        self._sleep = sleep
        self._begun_s: float | None = None
        self._step_s = 0.0
        self._longest_s = 0.0
        """The longest bubble that was ever expected."""

    def pass_through(self) -> None:
        """Take in that a step is over, and wait until the next can begin; without a host, it can at once."""
        self._finish()
        now_s = self._clock()
        if self._begun_s is not None:
            self._step_s = max(now_s - self._begun_s, 0.9 * self._step_s)
        look_s = now_s
        while not self._is_open(self._page.state):
            if self._clock() >= look_s:
                if not self._page.is_lent:
                    break
                look_s = self._clock() + LOOK_EVERY_S
            self._sleep(POLL_S)
        self._begun_s = self._clock()

    def _is_open(self, state: StallState) -> bool:
        if not state.is_waiting:
            return False
        if state.until_s is None:
            return self._step_s == 0.0
        self._longest_s = max(self._longest_s, state.until_s - state.since_s)
        left_s = state.until_s - self._clock()
        return left_s >= min(self._step_s, 0.9 * self._longest_s)
