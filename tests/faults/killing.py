"""Doing something at a chosen call of Headwater's own code, such as dying."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], object], at_each: Callable[[int], None]) -> int:
    """Work, and tell before each call of Headwater's own code how many there were."""
    counted = [0]

    def count(calls: int) -> None:
        counted[0] = calls
        at_each(calls)

    watch_calls(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted[0]


def watch_calls(at_each: Callable[[int], None]) -> None:
    """From now on, tell before each call of Headwater's own code in this thread how many there were.

    Processes that are forked from this one are left in peace.
    """
    calls, here = 0, os.getpid()

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if os.getpid() != here:
            sys.setprofile(None)
        elif event == "call" and "/headwater/" in frame.f_code.co_filename:
            calls += 1
            at_each(calls)

    sys.setprofile(on_event)


def at_call(number: int, act: Callable[[], None]) -> Callable[[int], None]:
    """Return what does something at the call of this number."""

    def at_each(calls: int) -> None:
        if calls == number:
            act()

    return at_each


def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
