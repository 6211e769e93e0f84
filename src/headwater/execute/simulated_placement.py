"""What a simulated device does with a placement: a script of events, and of seconds that pass between them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.execute.simulated_times import SimulatedTimes
from headwater.space import Config
from headwater.store import Folder
from headwater.store.state_files import name_kept, name_state
from headwater.store.state_format import StateHeader, seal_state
from headwater.trials import (
    Brief,
    Ended,
    Ending,
    Event,
    Lane,
    Measured,
    Order,
    Outcome,
    Placement,
    Purpose,
    Report,
    Reported,
    Saved,
    Started,
    TrialGroup,
)

Curve: TypeAlias = Callable[[Config, int], Mapping[str, float]]
"""What a configuration reports at the end of an epoch; an exception fails the trial."""
Script: TypeAlias = Generator[float | Event, Order | None, None]
"""Yields seconds that pass, and events, which are answered."""

_NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
_NO_STATE = json.dumps({"$map": [["is_inherited", False]]})


class SimulatedPlacement:
    """One placement on one device, whose events are those of a worker that trains."""

    def __init__(
        self, placement: Placement, brief: Brief, kind: str, curve: Curve, times: SimulatedTimes, states: Folder
    ) -> None:
        self.placement = placement
        self._brief = brief
        self._kind = kind
        self._curve = curve
        self._times = times
        self._scale = None if brief.surrogate is None else brief.surrogate.at
        self._states = states
        self._is_pack = len(placement.groups) > 1
        self._groups = [_Group(group) for group in placement.groups]
        self._loaded: set[int] = set()
        self._clock: Callable[[], float] = float

    def play(self, clock: Callable[[], float]) -> Script:
        """Go through all of it; events are stamped by the clock."""
        self._clock = clock
        yield self._times.start_s
        if self.placement.purpose is not Purpose.TRAIN:
            lanes = self.placement.groups[0].lanes
            finding, seconds = self._times.measure(self.placement.purpose, lanes, self._kind, self._scale)
            yield seconds
            yield Measured(**self._stamp(), finding=finding)
            return
        while self._groups:
            group = min(self._groups, key=lambda one: (self._trains(one), one.epoch))
            if not group.has_started:
                yield from self._start(group)
            if self._trains(group):
                yield from self._train_epoch(group)
            else:
                yield from self._end(group, Outcome.DONE)

    def _trains(self, group: _Group) -> bool:
        return bool(group.lanes) and group.epoch < self._times.num_epochs

    def _start(self, group: _Group) -> Script:
        group.has_started = True
        order = yield Started(**self._stamp(), group=group.key)
        if order is not None and order.leave:
            group.lanes = []

    def _train_epoch(self, group: _Group) -> Script:
        seconds = self._times.time_epoch(group.lanes, self._kind, self._scale, len(self.placement.devices))
        seconds += self._is_pack * self._times.switch_s
        seconds -= self._times.load_s if group.epoch in self._loaded else 0.0
        self._loaded |= {group.epoch} if self._is_pack else set()
        yield seconds
        group.epoch += 1
        try:
            reports = tuple(
                Report(number=lane.number, epoch=group.epoch, metrics=self._curve(lane.config, group.epoch))
                for lane in group.lanes
            )
        except Exception:  # it stands for the trial's own code
            yield from self._end(group, Outcome.RAISED, traceback.format_exc(), seconds)
            return
        num_steps = self._times.num_steps
        order = yield Reported(
            **self._stamp(),
            group=group.key,
            reports=reports,
            num_steps=num_steps * (group.epoch - group.start_epoch),
            seconds=seconds,
            num_lane_steps=num_steps * len(reports),
            num_epochs=self._times.num_epochs,
        )
        assert order is not None, "a report gets an order"
        if order.save or order.keep or self._is_pack:
            yield from self._save(group, order)
        group.lanes = [lane for lane in group.lanes if lane.number not in order.leave]

    def _save(self, group: _Group, order: Order) -> Script:
        seconds = self._times.save_s * (len(order.save) + len(order.keep))
        yield seconds
        for number in order.save:
            self._write(name_state(number, group.epoch), number, group.epoch)
        kept = dict.fromkeys(order.keep, group.epoch)
        for number, epoch in kept.items():
            self._write(name_kept(number, epoch), number, epoch)
        answer = yield Saved(
            **self._stamp(),
            group=group.key,
            epochs=dict.fromkeys(order.save, group.epoch),
            kept=kept,
            seconds=seconds,
        )
        self._join(answer)

    def _end(self, group: _Group, outcome: Outcome, error: str = "", seconds: float = 0.0) -> Script:
        self._groups.remove(group)
        num_lane_steps = self._times.num_steps * (group.epoch - group.start_epoch) * len(group.lanes)
        answer = yield Ended(
            **self._stamp(),
            group=group.key,
            ending=Ending(outcome=outcome, lanes=(), error=error, num_lane_steps=num_lane_steps),
            numbers=tuple(lane.number for lane in group.lanes),
            seconds=seconds,
        )
        self._join(answer)

    def _stamp(self) -> dict[str, Any]:  # Any: a number, a name and a time
        """Return what every event has: whose it is, where and when."""
        return {"key": self.placement.key, "device": self.placement.devices[0], "time_s": self._clock()}

    def _join(self, answer: Order | None) -> None:
        self._groups += [_Group(group) for group in (() if answer is None else answer.join)]

    def _write(self, name: str, number: int, epoch: int) -> None:
        """Write a state that holds nothing but whose it is: the conductor looks for no more."""
        header = StateHeader(study=self._brief.states.study, trial=number, epoch=epoch, tree=_NO_STATE)
        self._states.write(name, seal_state(header, _NO_TENSORS))


class _Group:
    """A group on its way."""

    def __init__(self, group: TrialGroup) -> None:
        self.key = group.key
        self.lanes: Sequence[Lane] = group.lanes
        self.start_epoch = self.epoch = group.lanes[0].start_epoch
        self.has_started = False
