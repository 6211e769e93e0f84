"""Threads that the user's code starts while lanes ride, and work that it gives to a pool: the lane mode goes along.

Torch keeps its modes by thread. Without them a lane tensor would raise there, where nobody may hear of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import wraps
from typing import Any, Protocol, TypeAlias

from headwater.errors import CannotFuseError, LanesPart


class Guide(Protocol):
    """What a thread needs of the lane mode."""

    def for_thread(self) -> AbstractContextManager[Any]:
        """Return a mode for another thread, which ends with this one."""


FindGuide: TypeAlias = Callable[[], Guide | None]
_CARRIERS = ("headwater.", "concurrent.futures.thread")
"""Modules whose threads are not for one run: what they are given takes the mode along."""


def lead_start(original: Any, find: FindGuide) -> Any:
    """Let a thread take the mode along for as long as it runs."""

    def start(thread: Any) -> None:
        guide = find()
        starter = str(sys._getframe(1).f_globals.get("__name__", ""))
        if guide is not None and not starter.startswith(_CARRIERS):
            thread.run = _take_along(guide, thread.run, is_heard=False)
        original(thread)

    return start


def lead_submit(original: Any, find: FindGuide) -> Any:
    """Let work for a pool take the mode along; what it raises is kept for whoever asks for its result."""

    def submit(pool: Any, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        guide = find()
        return original(pool, work if guide is None else _take_along(guide, work, is_heard=True), *args, **kwargs)

    return submit


def lead_new_thread(original: Any, find: FindGuide) -> Any:
    """Let a thread of the lowest kind take the mode along."""

    def start_new_thread(work: Any, *args: Any) -> Any:
        guide = find()
        return original(work if guide is None else _take_along(guide, work, is_heard=False), *args)

    return start_new_thread


def _take_along(guide: Guide, work: Callable[..., Any], is_heard: bool) -> Callable[..., Any]:
    """Return the work, to be done under the mode; a signal that nobody would hear is noted, and need not be shown."""
    context, mode = copy_context(), guide.for_thread()

    @wraps(work)
    def run(*args: Any, **kwargs: Any) -> Any:
        with suppress(*() if is_heard else (CannotFuseError, LanesPart)), mode:
            return context.run(work, *args, **kwargs)

    return run
