"""A clock that shows what tests want, and jumps when they say so."""

from __future__ import annotations

import multiprocessing


class JumpingClock:
    """Stands still until it is moved on; processes that are forked from here share it."""

    def __init__(self) -> None:
        self._now = multiprocessing.get_context("fork").Value("d", 1000.0)

    def __call__(self) -> float:
        now: float = self._now.value
        return now

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        with self._now.get_lock():
            self._now.value += seconds
