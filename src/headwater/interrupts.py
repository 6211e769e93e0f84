"""Ctrl-C: the first one ends a run with everything saved, the second at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from headwater.errors import StudyEnds

REASON = "interrupted; what was under way can be resumed"
TOLD = "interrupted: it ends after the next report, with everything saved; Ctrl-C again ends it at once"
TOLD_MEASURING = "interrupted: what was being measured is given up, and the run ends"


class Stoppable(Protocol):
    """A run that ends after its next report once it has a reason to."""

    stop_reason: str | None


@contextmanager
def stopping_at_interrupt(
    run: Stoppable, is_measuring: Callable[[], bool] = lambda: False, tell: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Let the first Ctrl-C end the run after the next report, and the second at once; `tell` hears of the first.

    What only measures comes to no report and has nothing to save: it ends where it is.

    Raises:
        StudyEnds: It was interrupted while it measured.
        KeyboardInterrupt: It was interrupted twice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if run.stop_reason is not None:
            raise KeyboardInterrupt
        run.stop_reason = REASON
        measures = is_measuring()
        _acknowledge(TOLD_MEASURING if measures else TOLD, tell)
        if measures:
            raise StudyEnds(REASON)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _acknowledge(text: str, tell: Callable[[str], None]) -> None:
    """Say it now, in whatever the process was doing; a stream that was being written to takes no second writer."""
    try:
        tell(text)
    except RuntimeError:
        with suppress(OSError, AttributeError, ValueError):
            os.write(sys.__stderr__.fileno(), f"\n{text}\n".encode())  # type: ignore[union-attr]  # else AttributeError
