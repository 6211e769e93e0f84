"""CPU time of competing ways, each in a process of its own that waits for its turns: only one runs at a time.

The turns of a round lie so close together that a machine that is slower for a while is so for all of them.
"""

import gc
import math
import os
import re
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

Steps: TypeAlias = Callable[[int], None]
"""Takes this many steps."""
Time: TypeAlias = float | str
"""CPU seconds of a step, or why there are none."""

BLOCK_S = 0.25
"""How long a turn is, long enough to be at home in the caches; a longer step has a turn to itself."""
WARM_UP = 0.3
"""So much of a turn comes before it, untimed: others have been in the caches meanwhile."""
MIN_ROUNDS = 5
ENOUGH_LAPS = 3
"""Who dies after so many turns has been measured."""
MOST_BYTES = 18 * 2**30
"""What all processes of a race may take together."""
OUT_OF_MEMORY = "out of memory"
ORPHAN_S = 20.0
"""How often who waits for a turn looks whether there is still somebody to give it."""


class Way:
    """One of the ways, in a process that builds it, and takes steps when it is told to."""

    def __init__(self, build: Callable[[], Steps], spared_bytes: int = 0) -> None:
        context = get_context("fork")
        self.memory_bytes = 0
        self.failure = ""
        self._spared_bytes = spared_bytes
        self._laps: list[float] = []
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, build, os.getpid()), daemon=True)
        self._process.start()
        other.close()  # so that its death is heard

    @property
    def seconds(self) -> Time:
        """The lower quartile of its turns: what disturbs a turn only adds time."""
        if self.failure and len(self._laps) < ENOUGH_LAPS:
            return self.failure
        return sorted(self._laps)[len(self._laps) // 4]

    def ask(self, others: Iterable["Way"]) -> float:
        """Let it build or take a turn, in the memory that the others leave; return the CPU seconds of its block.

        Nobody grows but the one whose turn it is, so together they never take more than they may.
        """
        if self.failure:
            return 0.0
        taken = sum(way.memory_bytes for way in others)
        try:
            self._pipe.send(max(MOST_BYTES - self._spared_bytes - taken, 0))
            answer = self._pipe.recv()
        except (EOFError, OSError):
            answer = OUT_OF_MEMORY
        if isinstance(answer, str):
            self.failure, self.memory_bytes = answer, 0
            self._process.join()
            return 0.0
        block_s, seconds, self.memory_bytes = answer
        self._laps.append(seconds)
        return float(block_s)

    def forget(self) -> None:
        """Leave out the turns so far."""
        self._laps.clear()

    def end(self) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()


class Race:
    """Ways that have turns, round after round."""

    def __init__(self, ways: Sequence[Way], seconds: float) -> None:
        self._ways = ways
        round_s = self._round()
        num_running = sum(not way.failure for way in ways)
        self.num_rounds = max(MIN_ROUNDS, round(seconds * num_running / max(round_s, 1e-9)))
        """How many rounds take so many CPU seconds for each way."""
        for way in ways:
            way.forget()

    def run(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            self._round()

    def end(self) -> None:
        for way in self._ways:
            way.end()

    def _round(self) -> float:
        return sum(way.ask(other for other in self._ways if other is not way) for way in self._ways)


def call_apart(function: Callable[..., Any], *args: object) -> Any:
    """Call in a process of its own; None where it dies."""
    context = get_context("fork")
    pipe, other = context.Pipe(duplex=False)
    process = context.Process(target=lambda: other.send(function(*args)), daemon=True)
    process.start()
    other.close()
    try:
        return pipe.recv()
    except EOFError:
        return None
    finally:
        process.join()


def _serve(pipe: Connection, build: Callable[[], Steps], parent: int) -> None:
    """Build when first asked, and take a turn whenever asked."""
    steps, count = None, 1
    while (left_bytes := _await(pipe, parent)) is not None:
        try:
            _limit_memory(left_bytes)
            if steps is None:
                steps = build()
                count = max(1, round(BLOCK_S / _time(steps, 1)))
            block_s = _time(steps, count)
            gc.collect()
            pipe.send((block_s, block_s / count, _status("Pss", "smaps_rollup")))
        except Exception as error:  # a way that does not run is a cell that says so
            pipe.send(_reason(error))
            return


def _await(pipe: Connection, parent: int) -> int | None:
    """Return how much memory the turn may take; None where the parent is gone."""
    while not pipe.poll(ORPHAN_S):
        if os.getppid() != parent:
            return None
    try:
        return int(pipe.recv())
    except EOFError:
        return None


def _time(steps: Steps, count: int) -> float:
    """Return the CPU seconds of so many steps, after some that fill the caches."""
    steps(math.ceil(WARM_UP * count))
    begin = time.process_time()
    steps(count)
    return time.process_time() - begin


def _limit_memory(left_bytes: int) -> None:
    address_space = _status("VmSize", "status") + left_bytes - _status("Pss", "smaps_rollup")
    resource.setrlimit(resource.RLIMIT_AS, (address_space, resource.RLIM_INFINITY))


def _status(name: str, file: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self", file).read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _reason(error: BaseException) -> str:
    text = str(error)
    is_memory = isinstance(error, MemoryError) or "allocate memory" in text or "bad_alloc" in text
    return OUT_OF_MEMORY if is_memory else (text.splitlines() or [type(error).__name__])[0]
