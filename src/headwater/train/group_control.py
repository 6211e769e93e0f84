"""A group while it trains: what its trial is told at reports, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from headwater.train.state_store import LaneStates
from headwater.train.trial import Capture
from headwater.trials import (
    ChosenWay,
    Decision,
    Ended,
    Ending,
    Event,
    Noted,
    Order,
    Report,
    Reported,
    Saved,
    Started,
    Stepped,
    TrialGroup,
)

Tell: TypeAlias = Callable[[Event], Order | None]
"""Takes what happened, and returns what is to be done about it."""

RESTARTS = "a trial that pauses is trained again from its beginning when it goes on"
"""Begins the note on a function whose trials cannot be continued from a checkpoint."""
STEPS_EVERY_S = 0.1
"""So often is it told how many steps were taken."""


class GroupControl:
    """The control of one group's trial: passes on what it says, and does what it is ordered to."""

    def __init__(
        self,
        key: int,
        group: TrialGroup,
        states: LaneStates,
        tell: Tell,
        *,
        is_packed: bool = False,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self._key = key
        self._states = states
        self._tell = tell
        self._is_packed = is_packed
        self._on_step = on_step
        self._seconds = 0.0
        """How long it has trained since its last report, but for what has passed since `_since_s`."""
        self._since_s = time.perf_counter()
        self._mates: tuple[TrialGroup, ...] = ()
        self._num_epochs = 0
        self._num_steps = 0
        self._num_untold = 0
        self._told_s = self._since_s

    def start(self) -> bool:
        """Say that the group is about to train; tell whether it is to."""
        order = self._tell(Started(key=self._key, group=self.group.key))
        return order is None or not order.leave

    @contextmanager
    def having_turn(self) -> Iterator[None]:
        """Count what passes now as the group's own time; in a pack, the turns of others are not."""
        self._since_s = time.perf_counter()
        try:
            yield
        finally:
            self._charge()

    def end(self, ending: Ending, ways: tuple[ChosenWay, ...] = ()) -> Ended:
        """Return how it ended, and what was learnt of ways to compute."""
        self._tell_steps()
        numbers = tuple(lane.number for lane in ending.lanes)
        seconds, ending = self._take_seconds(), replace(ending, lanes=())
        return Ended(key=self._key, group=self.group.key, ending=ending, numbers=numbers, seconds=seconds, ways=ways)

    def hinder(self, obstacle: str) -> None:
        """Note that trials which may pause cannot be continued from a checkpoint."""
        if any(lane.until is not None for lane in self.group.lanes):
            self._tell(Noted(key=self._key, text=f"{RESTARTS}: {obstacle}"))

    def expect(self, num_epochs: int) -> None:
        """Pass on how many epochs there will be, with what is told next."""
        self._num_epochs = num_epochs

    def finish(self, reports: Sequence[Report], capture: Capture, *, goes_on: bool) -> None:
        """Ask whether weights of trials that are done are kept, and tell that they are done where others go on."""
        if reports:
            again = Reported(
                key=self._key, group=self.group.key, reports=tuple(reports), num_steps=0, seconds=0.0, is_over=True
            )
            order = self._tell(again)
            if order is not None and order.keep:
                self._tell(self._save(order, capture))
        if goes_on:
            self._tell_steps(tuple(report.number for report in reports))

    def step(self, num_lanes: int) -> None:
        """Count a step."""
        self._num_steps += 1
        self._num_untold += num_lanes
        self._on_step()
        if time.perf_counter() - self._told_s > STEPS_EVERY_S:
            self._tell_steps()

    def report(self, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        """Pass on what the lanes report, save and keep what is to be, and say who goes on."""
        order = self._tell(
            Reported(
                key=self._key,
                group=self.group.key,
                reports=tuple(reports),
                num_steps=self._num_steps,
                seconds=self._take_seconds(),
                num_lane_steps=self._take_untold(),
                num_epochs=self._num_epochs,
            )
        )
        assert order is not None, "a report gets an order"
        if order.save or order.keep or self._is_packed:
            answer = self._tell(self._save(order, capture))
            self._mates += () if answer is None else answer.join
        return [Decision.STOP if report.number in order.leave else Decision.CONTINUE for report in reports]

    def take_mates(self) -> tuple[TrialGroup, ...]:
        """Return the groups that are to join the pack, once."""
        mates, self._mates = self._mates, ()
        return mates

    def _save(self, order: Order, capture: Capture) -> Saved:
        begin = time.perf_counter()
        saved: dict[int, int] = {}
        obstacles: dict[int, str] = {}
        for number in order.save:
            state = capture(number)
            if state.is_whole:
                self._states.put(number, state)
                saved[number] = state.epoch
            else:
                obstacles[number] = state.obstacle
                self.hinder(state.obstacle)  # it may be found long after the first report
            del state  # before the next one is copied
        kept: dict[int, int] = {}
        for number in order.keep:
            best = capture(number)
            self._states.keep(number, best)
            kept[number] = best.epoch
            del best
        if saved or kept:
            self._states.flush()
        seconds = time.perf_counter() - begin
        return Saved(key=self._key, group=self.group.key, epochs=saved, obstacles=obstacles, kept=kept, seconds=seconds)

    def _tell_steps(self, done: tuple[int, ...] = ()) -> None:
        num_untold, num_epochs = self._take_untold(), self._num_epochs
        if num_untold or done:
            key, group = self._key, self.group.key
            self._tell(Stepped(key=key, group=group, num_lane_steps=num_untold, num_epochs=num_epochs, done=done))

    def _take_untold(self) -> int:
        """Return how many steps were taken, by lane, since that was told last; it is told now."""
        num_untold, self._num_untold = self._num_untold, 0
        self._told_s = time.perf_counter()
        return num_untold

    def _take_seconds(self) -> float:
        """Return how long it has trained since this was asked last."""
        self._charge()
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _charge(self) -> None:
        now = time.perf_counter()
        self._seconds += now - self._since_s
        self._since_s = now
