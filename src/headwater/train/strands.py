"""Work on threads of their own that take turns: one computes, the others wait, each with its own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Semaphore, Thread, current_thread
from typing import Generic, TypeVar

from headwater.errors import StrandEnds
from headwater.train.seeding import Randomness

T = TypeVar("T")


class Strand(Generic[T]):
    """One piece of work that goes on only while it has the turn.

    Torch keeps its modes, gradient switch and vmap levels by thread, so that no strand sees those of another.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.answer: T | None = None
        """What the work returned."""
        self.error: BaseException | None = None
        """What it raised."""
        self._work = work
        self._turn = Semaphore(0)
        self._return = Semaphore(0)
        self._is_cut = False
        self._is_done = False
        self._randomness: Randomness | None = None
        self._thread = Thread(target=copy_context().run, args=(self._run,), daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether it is this thread that does the work."""
        return self._thread is current_thread()

    @property
    def has_ended(self) -> bool:
        """Whether the work is done, in whatever way."""
        return self._is_done

    def go_on(self) -> None:
        """Give it the turn, and wait until it gives it back or ends."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()
        self._return.acquire()
        if self._is_done:
            self._thread.join()

    def give_way(self) -> None:
        """Give the turn back and wait for the next; to be called by the work itself."""
        if self._randomness is None:
            self._randomness = Randomness()
        else:
            self._randomness.save()
        self._return.release()
        self._turn.acquire()
        if self._is_cut:
            raise StrandEnds
        self._randomness.restore()

    def cut(self) -> None:
        """End the work where it waits; code that catches everything may need to be told more than once."""
        self._is_cut = True
        while self._thread.ident is not None and not self._is_done:
            self.go_on()

    def _run(self) -> None:
        try:
            self.answer = self._work()
        except BaseException as error:
            self.error = error
        finally:
            self._is_done = True
            self._return.release()
