"""What runs on a device: a worker trains the placements that it is given, and tells what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

import torch

from headwater.errors import CannotPack
from headwater.train.compiling import Compiler
from headwater.train.engines import LaneState
from headwater.train.machine import is_deterministic
from headwater.train.packing import Pack
from headwater.train.profiling import foresee_training, measure_alone, measure_loading, profile_lanes
from headwater.train.ranks import RankGroup
from headwater.train.running import Workshop, choose_device, run_group
from headwater.train.running_group import RunningGroup, Tell, TurnClock
from headwater.train.scaling import Scaling
from headwater.train.start_check import check_start, list_possible_scales
from headwater.train.state_store import StateFolder, StateStore
from headwater.train.streams import Meter, Seat
from headwater.train.threads import ThreadChooser
from headwater.trials import (
    Brief,
    ChosenWay,
    Deadline,
    Ending,
    Measured,
    Noted,
    Outcome,
    Placement,
    Purpose,
    StartCheck,
    Surrogate,
    TrialGroup,
)


class Worker:
    """Runs placements of one study; its function and what it has learnt of speed stay with it from one to the next."""

    def __init__(
        self, brief: Brief, clock: Callable[[], float] = time.perf_counter, folder: StateFolder | None = None
    ) -> None:
        self._clock = clock
        self._note: Callable[[str], None] = lambda text: None
        self._states = StateStore(brief.states, folder)
        self._chooses_threads = brief.chooses_threads
        self._surrogate = brief.surrogate
        self._told_ways: frozenset[ChosenWay] = frozenset(brief.learnt.strategies)
        self._workshop = Workshop(
            brief.function,
            choose_device(brief.device),
            scaling=_build_scaling(brief.surrogate),
            compiler=Compiler(tell=self._tell_note) if brief.compiles else None,
            shares_loading=brief.shares_loading,
        )
        self._workshop.strategies.adopt(brief.learnt.strategies)

    def run(self, placement: Placement, tell: Tell, ranks: RankGroup | None = None) -> None:
        """Train or measure, until all groups of the placement have ended; `tell` takes each event, and answers it.

        With `ranks`, several workers run the same placement, and only what rank 0 tells counts.
        """
        self._note = partial(_note, tell, placement.key)
        if placement.purpose is not Purpose.TRAIN:
            tell(replace(self._measure(placement), ways=self.take_ways()))
            return
        with _choosing_threads(self._count_threads(placement)) as step:
            if len(placement.groups) == 1:
                self._train_alone(placement, tell, step, ranks)
            else:
                _PackRun(self, placement, tell, step).run()

    def _tell_note(self, text: str) -> None:
        self._note(text)

    def _count_threads(self, placement: Placement) -> int:
        """Return how many threads a placement may have at most; 1 where it keeps those that torch has."""
        is_wide = len(placement.devices) > 1 and not placement.as_ranks
        if not (self._chooses_threads or is_wide) or self._workshop.device.type != "cpu" or is_deterministic():
            return 1
        return max(torch.get_num_threads(), len(placement.devices))

    def open_group(self, key: int, group: TrialGroup, tell: Tell, turn: TurnClock, is_packed: bool) -> RunningGroup:
        """Return a group that is about to train here."""
        return RunningGroup(key, group, self._states, tell, turn, is_packed=is_packed)

    def train(self, running: RunningGroup, seat: Seat | None = None, ranks: RankGroup | None = None) -> Ending:
        """Call the training function for a group, from its seat in a pack."""
        if not running.start():
            return Ending(outcome=Outcome.DONE, lanes=())
        workshop = self._workshop if seat is None else replace(self._workshop, seat=seat)
        return run_group(workshop, running.group, running, self._load(running.group), ranks=ranks)

    def take_ways(self) -> tuple[ChosenWay, ...]:
        """Return the ways of computing that were chosen since this was asked last."""
        ways = self._workshop.strategies.export()
        fresh = tuple(way for way in ways if way not in self._told_ways)
        self._told_ways |= set(fresh)
        return fresh

    def _train_alone(self, placement: Placement, tell: Tell, step: Callable[[], None], ranks: RankGroup | None) -> None:
        running = self.open_group(placement.key, placement.groups[0], tell, TurnClock(), is_packed=False)
        running.on_step = step
        ending = self.train(running, ranks=ranks)
        for text in ending.notes:
            self._note(text)
        tell(running.end(ending, self.take_ways()))

    def _load(self, group: TrialGroup) -> list[LaneState] | None:
        """Return the states that a group goes on from."""
        epoch = group.lanes[0].start_epoch
        return [self._states.load(number, epoch) for number in group.numbers] if epoch else None

    def _measure(self, placement: Placement) -> Measured:
        group, key = placement.groups[0], placement.key
        deadline = Deadline.start(placement.seconds_left, self._clock)
        workshop = replace(self._workshop, deadline=deadline, num_workers=placement.num_devices)
        states = self._load(group)
        if placement.purpose is Purpose.ALONE:
            return Measured(key=key, finding=measure_alone(replace(workshop, seat=Meter()), group.lanes, states))
        if placement.purpose is Purpose.FORESEE:
            return Measured(key=key, finding=foresee_training(workshop, group.lanes[0]))
        if placement.purpose in (Purpose.START, Purpose.SCALES):
            return Measured(key=key, finding=self._check(workshop, placement))
        if placement.purpose is Purpose.LOADING:
            return Measured(key=key, finding=measure_loading(workshop, group, states)[0])
        profile, ending = profile_lanes(replace(workshop, seat=Meter()), group.lanes, states)
        numbers = () if ending is None else tuple(lane.number for lane in ending.lanes)
        ending = None if ending is None else replace(ending, lanes=())
        return Measured(key=key, finding=profile, ending=ending, numbers=numbers)

    def _check(self, workshop: Workshop, placement: Placement) -> StartCheck | tuple[int, ...]:
        """Look at the first steps of a study with surrogates."""
        assert self._surrogate is not None
        lanes = placement.groups[0].lanes
        if placement.purpose is Purpose.START:
            return check_start(workshop, self._surrogate, lanes)
        return list_possible_scales(workshop, self._surrogate, lanes[0])


class _PackRun:
    """The groups of one placement that take turns, and those that join them on the way."""

    def __init__(self, worker: Worker, placement: Placement, tell: Tell, step: Callable[[], None]) -> None:
        self._worker = worker
        self._key = placement.key
        self._tell = tell
        self._step = step
        self._turn = TurnClock()
        self._pack: Pack[RunningGroup, Ending] = Pack(self._after_turn)
        self._load(placement.groups)

    def run(self) -> None:
        """Train until all have ended."""
        with closing(self._pack):
            for running, ending in self._pack.run():
                order = self._tell(running.end(ending, self._worker.take_ways()))
                self._load(() if order is None else order.join)

    def _load(self, groups: Sequence[TrialGroup]) -> None:
        for group in groups:
            running = self._worker.open_group(self._key, group, self._tell, self._turn, is_packed=True)
            running.on_step = self._step
            self._pack.load(running, partial(self._train, running))

    def _train(self, running: RunningGroup, seat: Seat) -> Ending:
        try:
            return self._worker.train(running, seat)
        except CannotPack as refusal:
            return Ending(outcome=Outcome.REFUSED, lanes=running.group.lanes, error=str(refusal))

    def _after_turn(self, running: RunningGroup) -> None:
        self._turn.charge(running)
        self._load(running.take_mates())


def _note(tell: Tell, key: int, text: str) -> None:
    tell(Noted(key=key, text=text))


def _build_scaling(surrogate: Surrogate | None) -> Scaling | None:
    if surrogate is None or surrogate.at in (None, 1):
        return None  # the target trains as it is written
    assert surrogate.at is not None
    return Scaling(surrogate, surrogate.at)


@contextmanager
def _choosing_threads(most: int) -> Iterator[Callable[[], None]]:
    """Let what trains alone have as many threads as are fast; the answer takes note of each step."""
    if most == 1:
        yield lambda: None
        return
    before = torch.get_num_threads()
    try:
        yield ThreadChooser(most).step
    finally:
        torch.set_num_threads(before)
