"""Where a pipeline stalls and what fits there: the timetable of a schedule, the memory that its stages leave.

A pipeline cuts a model into stages, one on each device, and a batch into micro-batches. Between the forward pass of its
last micro-batch and the backward pass of its first, a stage waits for the others: that is a bubble.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headwater.errors import PlanError
from headwater.plan.speeds import count_fitting_lanes
from headwater.trials import Measurement

GIB = 1 << 30


class Pass(StrEnum):
    """What a stage does with a micro-batch."""

    FORWARD = "forward"
    BACKWARD = "backward"


class PipelineOrder(StrEnum):
    """In which order a stage takes its passes."""

    ONE_F_ONE_B = "1f1b"
    """After as many forward passes as there are stages from here on, one backward and one forward in turn."""
    GPIPE = "gpipe"
    """All forward passes, then all backward ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A pass of one micro-batch through one stage."""

    kind: Pass
    micro_batch: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A stretch of a step in which a stage waits for others."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Pipeline:
    """A step of a pipeline whose stages take equally long.

    Raises:
        PlanError: It has no stages or no micro-batches, or 1F1B has fewer of these than stages.
    """

    num_stages: int
    num_micro_batches: int
    order: PipelineOrder = PipelineOrder.ONE_F_ONE_B
    forward_s: float = 1.0
    backward_s: float = 1.0

    def __post_init__(self) -> None:
        least = self.num_stages if self.order is PipelineOrder.ONE_F_ONE_B else 1
        if self.num_stages < 1 or self.num_micro_batches < least:
            raise PlanError(
                f"a pipeline of {self.num_stages} stages and {self.num_micro_batches} micro-batches; it must have a "
                "stage at least, and with 1F1B as many micro-batches as stages"
            )
        if not (self.forward_s > 0 and self.backward_s > 0):
            raise PlanError(
                f"passes that take {self.forward_s:g} s forward and {self.backward_s:g} s backward; both must take time"
            )

    @cached_property
    def timetable(self) -> tuple[tuple[Slot, ...], ...]:
        """What each stage does when, as soon as it can: a pass waits for the one before it and for its neighbour."""
        orders = [self._list_passes(stage) for stage in range(self.num_stages)]
        ends: dict[tuple[int, Pass, int], float] = {}
        slots: list[list[Slot]] = [[] for _ in orders]
        while any(len(done) < len(order) for done, order in zip(slots, orders, strict=True)):
            for stage, order in enumerate(orders):
                while len(slots[stage]) < len(order):
                    kind, place = order[len(slots[stage])]
                    arrival_s = self._find_arrival(stage, kind, place, ends)
                    if arrival_s is None:
                        break
                    begin_s = max(arrival_s, slots[stage][-1].end_s if slots[stage] else 0.0)
                    end_s = begin_s + (self.forward_s if kind is Pass.FORWARD else self.backward_s)
                    ends[stage, kind, place] = end_s
                    slots[stage].append(Slot(kind=kind, micro_batch=place, begin_s=begin_s, end_s=end_s))
        return tuple(map(tuple, slots))

    @property
    def step_s(self) -> float:
        """How long a step takes."""
        return max(slots[-1].end_s for slots in self.timetable)

    def list_stalls(self, stage: int) -> list[Stall]:
        """Return when a stage waits in a step, from its beginning to its end."""
        edges = [0.0]
        for slot in self.timetable[stage]:
            edges += [slot.begin_s, slot.end_s]
        edges.append(self.step_s)
        return [
            Stall(begin_s=begin, end_s=end)
            for begin, end in zip(edges[::2], edges[1::2], strict=True)
            if end - begin > 1e-12 * self.step_s
        ]

    def measure_bubble(self, stage: int) -> float:
        """Return what share of a step a stage waits."""
        return sum(stall.seconds for stall in self.list_stalls(stage)) / self.step_s

    def count_stored(self, stage: int) -> int:
        """Return of how many micro-batches a stage keeps the activations at most."""
        most = stored = 0
        for slot in self.timetable[stage]:
            stored += 1 if slot.kind is Pass.FORWARD else -1
            most = max(most, stored)
        return most

    def _list_passes(self, stage: int) -> list[tuple[Pass, int]]:
        places = range(self.num_micro_batches)
        if self.order is PipelineOrder.GPIPE:
            return [(Pass.FORWARD, place) for place in places] + [(Pass.BACKWARD, place) for place in places]
        ahead = min(self.num_stages - stage, self.num_micro_batches)
        passes = [(Pass.FORWARD, place) for place in range(ahead)]
        for place in places:
            passes.append((Pass.BACKWARD, place))
            passes += [(Pass.FORWARD, place + ahead)] if place + ahead < self.num_micro_batches else []
        return passes

    def _find_arrival(
        self, stage: int, kind: Pass, place: int, ends: dict[tuple[int, Pass, int], float]
    ) -> float | None:
        """Return when that which a pass needs has come from a neighbour; None while nobody knows."""
        if kind is Pass.FORWARD:
            return 0.0 if stage == 0 else ends.get((stage - 1, kind, place))
        if stage == self.num_stages - 1:
            return ends.get((stage, Pass.FORWARD, place))
        return ends.get((stage + 1, kind, place))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """The memory of a device that has a stage of a pipeline."""

    capacity_bytes: int
    weights_bytes: int
    """Weights, gradients and optimizer state of the stage."""
    activation_bytes: int
    """What it keeps of one micro-batch until its backward pass."""

    def find_room(self, num_stored: int) -> int:
        """Return how many bytes are never used where so many micro-batches are kept."""
        return max(self.capacity_bytes - self.weights_bytes - num_stored * self.activation_bytes, 0)


def fit_lanes(measurements: Sequence[Measurement], room_bytes: int | None) -> float:
    """Return how many lanes fit into so much memory, by what one and a few took; inf where nobody knows.

    A group needs what it shares and the same again for each lane, so two points tell all sizes; where only one was
    measured, each lane is taken to need as much as the first.
    """
    known = {item.num_lanes: item.peak_bytes for item in measurements if item.peak_bytes}
    if room_bytes is None or 1 not in known:
        return math.inf
    one, most = known[1], max(known)
    each = (known[most] - one) / (most - 1) if most > 1 else 0.0
    return count_fitting_lanes(one, one + each if each > 0 else 2 * one, room_bytes)


def explain_refusal(needed_bytes: int, rooms_bytes: Sequence[int]) -> str:
    """Say why a trial cannot train in bubbles that leave so much memory each."""
    most = max(rooms_bytes, default=0)
    return (
        f"a trial needs {needed_bytes / GIB:.2f} GiB, but the bubbles leave {most / GIB:.2f} GiB "
        "at most; give the study a device of its own, a smaller batch or a surrogate, or lend a stage with more room"
    )


def bound_speedup(num_exclusive: int, num_lent: int, share: float) -> float:
    """Return how many times as fast a study could be at most, with bubbles of this share of a device's speed each.

    That is if no trial ever waited for another.
    """
    if num_exclusive < 1:
        raise PlanError(f"{num_exclusive} devices of its own; a study needs one to be compared with")
    return 1.0 + num_lent * share / num_exclusive
