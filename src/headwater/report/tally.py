"""Counting what a running study has done, for whoever watches it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from headwater.report.watching import Pulse
from headwater.trials import Status, TrialRecord


class Tally:
    """The figures of one run; trials that an earlier run finished count as done."""

    def __init__(self, num_total: int | None, mode: str, metric: str, known: Sequence[TrialRecord] = ()) -> None:
        self.num_lane_steps = 0
        self.num_epochs = 0
        """How many epochs the trials of the running group train."""
        self.seconds_alone: float | None = None
        """What the steps so far would have taken one by one, as far as that was measured."""
        self.best_number: int | None = None
        self._num_total = num_total
        self._sign = -1 if mode == "max" else 1
        self._best_value: float | None = None
        self._start = time.perf_counter()
        self._num_done = 0
        self._num_failed = 0
        self._running: dict[int, tuple[int, int]] = {}
        self._num_lanes = 0
        self._num_epochs_done = 0
        for record in known:
            self.end(record.status)
            if math.isfinite(record.value(metric)):
                self.see(record.number, record.value(metric))

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return time.perf_counter() - self._start

    def see(self, number: int, value: float) -> None:
        """Take in a value of the metric."""
        if self._best_value is None or self._sign * value < self._sign * self._best_value:
            self.best_number, self._best_value = number, value

    def has_reached(self, target: float) -> bool:
        """Tell whether a trial was as good as the target."""
        return self._best_value is not None and self._sign * self._best_value <= self._sign * target

    def advance(self, key: int, epoch: int, num_lanes: int) -> None:
        """Take in where a running group stands; one without lanes has ended."""
        self._running[key] = (epoch, num_lanes)
        if not num_lanes:
            del self._running[key]
        groups = self._running.values()
        self._num_lanes = sum(lanes for _, lanes in groups)
        self._num_epochs_done = sum(lanes * min(epochs, self.num_epochs) for epochs, lanes in groups)

    def end(self, status: Status) -> None:
        """Take in that a trial's segment has ended."""
        self._num_done += status.is_final
        self._num_failed += status is Status.FAILED

    def count_alone(self, num_lane_steps: int, seconds_per_step: float | None) -> None:
        """Add what these steps would have taken one by one, if that was measured."""
        if seconds_per_step is not None:
            self.seconds_alone = (self.seconds_alone or 0.0) + num_lane_steps * seconds_per_step

    def pulse(self) -> Pulse:
        """Sum up."""
        under_way = self._num_epochs_done / self.num_epochs if self.num_epochs else 0.0
        return Pulse(
            num_done=self._num_done,
            num_failed=self._num_failed,
            num_total=self._num_total,
            num_lanes=self._num_lanes,
            num_lane_steps=self.num_lane_steps,
            seconds=self.seconds,
            share_done=min((self._num_done + under_way) / self._num_total, 1.0) if self._num_total else 0.0,
            best_number=self.best_number,
            best_value=self._best_value,
        )
