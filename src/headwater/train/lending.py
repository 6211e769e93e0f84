"""Lending the bubbles of a pipeline: a hook around a schedule of `torch.distributed.pipelining`.

Every schedule waits for its neighbours through one function of torch, `_wait_batch_p2p`; while bubbles are lent, it
tells a page when the stage waits and when it goes on. Nothing else of the training is touched.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol

import torch
from torch.distributed.pipelining import schedules

from headwater import devices
from headwater.devices import Moment
from headwater.errors import StudyError
from headwater.stalls import LentStage, StallPage, StallState
from headwater.torch_private import exchange_pipeline_wait
from headwater.train.memory import available_bytes

ROOM_SHARE = 0.7
"""How much of what a stage leaves is lent: a process has more than its tensors."""
NUM_REMEMBERED = 8
"""By so many steps is it told how long a stall will last: by the shortest of them."""
POLL_S = 1e-4
"""So often is it seen whether a GPU has come to a stall, or through it."""


class Lending:
    """The bubbles of one stage while they are lent."""

    def __init__(self, page: StallPage) -> None:
        self._page = page

    @property
    def state(self) -> StallState:
        """What the stage does now, and how long it has waited since it is lent."""
        return self._page.state


@contextmanager
def lend_bubbles(
    schedule: schedules.PipelineScheduleSingle, folder: str | Path, *, memory_bytes: int | None = None
) -> Iterator[Lending]:
    """Lend the bubbles of this process's stage to studies on the same machine.

    Put the loop that calls `schedule.step` into a `with` block of it. Every process of the pipeline does so with the
    same folder, which it makes if there is none; only its user may be able to write there. A study that is run with
    `hw.ProcessExecutor(0, bubbles=folder)` trains in the bubbles from the end of the first step on, and leaves at its
    next reports when the block is left.

    Args:
        schedule: A schedule with one stage in each process, such as `Schedule1F1B` or `ScheduleGPipe`.
        folder: Where the stages tell of their stalls.
        memory_bytes: What a study may take of the device's memory; None: 70 % of what the stage leaves of a GPU after
            its first step, or of what the machine then has free, divided by the number of stages.

    Raises:
        StudyError: The schedule has several stages in a process, or the stage is lent in the folder already.
    """
    if not isinstance(schedule, schedules.PipelineScheduleSingle):
        raise StudyError(
            f"schedule is {type(schedule).__name__}; bubbles are lent by schedules with one stage in a process, "
            "such as Schedule1F1B and ScheduleGPipe"
        )
    stage = schedule._stage
    device = torch.device(stage.device)
    lent = LentStage(
        stage=stage.stage_index,
        num_stages=stage.num_stages,
        pid=os.getpid(),
        device=str(device),
        cores=tuple(sorted(os.sched_getaffinity(0))),
    )
    page = StallPage(Path(folder), lent)
    stalls: Stalls = StreamStalls(page, devices.record_moment) if device.type != "cpu" else HostStalls(page)
    room = StageRoom(page, device, stage.num_stages, memory_bytes)
    try:
        with _hooking(schedule, stalls, room):
            yield Lending(page)
    finally:
        stalls.close()
        page.close()


class Stalls(Protocol):
    """Tells a page of stalls, as a kind of device has them."""

    def wait(self, wait: Callable[[], None]) -> None:
        """Wait for neighbours, and tell of it."""

    def begin_step(self) -> None:
        """Take in that a step begins."""

    def close(self) -> None:
        """Tell nothing more."""


class HostStalls:
    """Stalls of a CPU: while it waits, it waits."""

    def __init__(self, page: StallPage) -> None:
        self._page = page
        self._expected = ExpectedStalls()

    def begin_step(self) -> None:
        """Take in that a step begins."""
        self._expected.begin_step()

    def wait(self, wait: Callable[[], None]) -> None:
        """Wait for neighbours, and tell of it."""
        self._page.begin_stall(self._expected.foresee())
        try:
            wait()
        finally:
            self._expected.see(self._page.end_stall())

    def close(self) -> None:
        """Tell nothing more; nothing is under way."""


class _StreamStall(NamedTuple):
    before: Moment
    after: Moment
    is_first: bool


class StreamStalls:
    """Stalls of a GPU: the process goes on while the stream waits, so a thread looks when that begins and ends.

    No GPU was there when this was written: it is tested with moments that are made up, and with nothing else.
    """

    def __init__(self, page: StallPage, record: Callable[[], Moment]) -> None:
        self._page = page
        self._record = record
        self._expected = ExpectedStalls()
        self._is_first = True
        self._stalls: SimpleQueue[_StreamStall | None] = SimpleQueue()
        self._watcher = Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def begin_step(self) -> None:
        """Take in that a step begins."""
        self._is_first = True

    def wait(self, wait: Callable[[], None]) -> None:
        """Have the stream wait for neighbours, between two moments that are looked for."""
        before = self._record()
        wait()
        self._stalls.put(_StreamStall(before, self._record(), self._is_first))
        self._is_first = False

    def close(self) -> None:
        """Tell of what is under way, and nothing more."""
        self._stalls.put(None)
        self._watcher.join()

    def _watch(self) -> None:
        while (stall := self._stalls.get()) is not None:
            if stall.is_first:
                self._expected.begin_step()
            _come_to(stall.before)
            self._page.begin_stall(self._expected.foresee())
            _come_to(stall.after)
            self._expected.see(self._page.end_stall())


class ExpectedStalls:
    """How long the stalls of a step last, by those of the steps before: each step waits at the same places."""

    def __init__(self) -> None:
        self._known: list[deque[float]] = []
        self._place = 0

    def begin_step(self) -> None:
        """Take in that a step begins."""
        self._place = 0

    def foresee(self) -> float | None:
        """Return how long the next stall of the step lasts at least, as far as any was seen."""
        return min(self._known[self._place]) if self._place < len(self._known) else None

    def see(self, seconds: float) -> None:
        """Take in how long it has lasted."""
        if self._place == len(self._known):
            self._known.append(deque(maxlen=NUM_REMEMBERED))
        self._known[self._place].append(seconds)
        self._place += 1


class StageRoom:
    """What a stage leaves of its device's memory; it is looked at after steps 1, 2, 4 and so on."""

    def __init__(self, page: StallPage, device: torch.device, num_stages: int, memory_bytes: int | None) -> None:
        self._page = page
        self._device = device
        self._num_stages = num_stages
        self._memory_bytes = memory_bytes

    def count_step(self) -> None:
        """Take in that a step is over."""
        num_steps = self._page.count_step()
        is_looked_at = num_steps == 1 or (self._device.type != "cpu" and num_steps & (num_steps - 1) == 0)
        if is_looked_at:
            self._page.open(self._find() if self._memory_bytes is None else self._memory_bytes)

    def _find(self) -> int | None:
        if self._device.type != "cpu" and (memory := devices.memory_of(self._device)) is not None:
            return int(ROOM_SHARE * (memory[1] - devices.peak_reserved_bytes(self._device)))
        free = available_bytes(self._device)
        return None if free is None else int(ROOM_SHARE * free / self._num_stages)


@contextmanager
def _hooking(schedule: Any, stalls: Stalls, room: StageRoom) -> Iterator[None]:  # Any: its step is replaced
    """Stand between a schedule and what it calls, and leave everything as it was."""
    step = schedule.step

    def stepping(*args: Any, **kwargs: Any) -> Any:  # Any: as the schedule takes and answers
        stalls.begin_step()
        answer = step(*args, **kwargs)
        room.count_step()
        return answer

    def waiting(work: list[Any]) -> None:  # Any: what torch waits for
        if work:
            stalls.wait(lambda: wait_for_all(work))

    schedule.step = stepping
    wait_for_all = exchange_pipeline_wait(waiting)
    try:
        yield
    finally:
        del schedule.step
        exchange_pipeline_wait(wait_for_all)


def _come_to(moment: Moment) -> None:
    while not moment.query():
        time.sleep(POLL_S)
