"""Ctrl-C: the first one ends a run with everything saved, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """A run that ends after its next report once it has a reason to."""

    stop_reason: str | None


@contextmanager
def stopping_at_interrupt(run: Stoppable) -> Iterator[None]:
    """Let the first Ctrl-C end the run after the next report, and the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if run.stop_reason is not None:
            raise KeyboardInterrupt
        run.stop_reason = "interrupted; what was under way can be resumed"

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
