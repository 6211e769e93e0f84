"""What runs on a device: a worker trains the placements that it is given, and tells what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch

from headwater.errors import CannotPack
from headwater.train.compiling import Compiler
from headwater.train.engines import LaneState
from headwater.train.group_control import GroupControl, Tell
from headwater.train.machine import is_deterministic
from headwater.train.packing import Pack, PackUnit
from headwater.train.profiling import foresee_training, measure_alone, measure_loading, profile_lanes
from headwater.train.quiet import quieting
from headwater.train.ranks import RankGroup
from headwater.train.running import TrainingSetup, choose_device, run_group
from headwater.train.scaling import Scaling
from headwater.train.start_check import check_start, list_possible_scales
from headwater.train.state_store import JointStates, LaneStates, StateFolder, StateStore
from headwater.train.streams import DataAccess, TimedAccess
from headwater.train.threads import ThreadChooser
from headwater.train.traceless import leaving_nothing
from headwater.trials import (
    Brief,
    ChosenWay,
    Deadline,
    Ending,
    Foreseen,
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
        self,
        brief: Brief,
        clock: Callable[[], float] = time.perf_counter,
        folder: StateFolder | None = None,
        gate: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._note: Callable[[str], None] = lambda text: None
        self._states: LaneStates = StateStore(brief.states, folder)
        if brief.more_states:
            assert folder is None, "studies train together where their states are in reach"
            self._states = JointStates([StateStore(place) for place in (brief.states, *brief.more_states)])
        self._chooses_threads = brief.chooses_threads
        self._surrogate = brief.surrogate
        self._told_ways: frozenset[ChosenWay] = frozenset(brief.learnt.strategies)
        self._setup = TrainingSetup(
            brief.function,
            choose_device(brief.device),
            metric=brief.metric,
            mode=brief.mode,
            max_epochs=brief.max_epochs,
            scaling=_build_scaling(brief.surrogate),
            compiler=Compiler(tell=self._tell_note) if brief.compiles else None,
            shares_loading=brief.shares_loading,
            gate=gate,
        )
        self._setup.strategies.adopt(brief.learnt.strategies)

    def run(self, placement: Placement, tell: Tell, ranks: RankGroup | None = None) -> None:
        """Train or measure, until all groups of the placement have ended; `tell` takes each event, and answers it.

        With `ranks`, several workers run the same placement, and only what rank 0 tells counts.
        """
        self._note = partial(_note, tell, placement.key)
        if placement.purpose is not Purpose.TRAIN:
            is_check = placement.purpose in (Purpose.START, Purpose.SCALES)  # a check that ends early shows nothing
            with quieting(), nullcontext() if is_check else leaving_nothing():
                measured = self._measure(placement, partial(_foresee, tell, placement))
            tell(replace(measured, ways=self._take_ways()))
            return
        with _choosing_threads(self._count_threads(placement)) as step:
            if len(placement.groups) == 1:
                self._train_alone(placement, tell, step, ranks)
            else:
                self._train_pack(placement, tell, step)

    def _tell_note(self, text: str) -> None:
        self._note(text)

    def _count_threads(self, placement: Placement) -> int:
        """Return how many threads a placement may have at most; 1 where it keeps those that torch has."""
        is_wide = len(placement.devices) > 1 and not placement.as_ranks
        if not (self._chooses_threads or is_wide) or self._setup.device.type != "cpu" or is_deterministic():
            return 1
        return max(torch.get_num_threads(), len(placement.devices))

    def _train_alone(self, placement: Placement, tell: Tell, step: Callable[[], None], ranks: RankGroup | None) -> None:
        control = GroupControl(placement.key, placement.groups[0], self._states, tell, on_step=step)
        ending = self._train(control, ranks=ranks)
        for text in ending.notes:
            self._note(text)
        tell(control.end(ending, self._take_ways()))

    def _train_pack(self, placement: Placement, tell: Tell, step: Callable[[], None]) -> None:
        """Train groups that take turns, and those that join them on the way, until all have ended."""

        @contextmanager
        def turn(control: GroupControl) -> Iterator[None]:
            with control.having_turn():
                yield
            load(control.take_mates())

        def load(groups: Sequence[TrialGroup]) -> None:
            for group in groups:
                control = GroupControl(placement.key, group, self._states, tell, is_packed=True, on_step=step)
                pack.load(control, partial(self._train_packed, control), self._setup.function)

        pack: Pack[GroupControl, Ending] = Pack(turn)
        load(placement.groups)
        with closing(pack):
            for control, ending in pack.run():
                for text in ending.notes:
                    self._note(text)
                order = tell(control.end(ending, self._take_ways()))
                load(() if order is None else order.join)

    def _train_packed(self, control: GroupControl, unit: PackUnit[GroupControl, Ending]) -> Ending:
        try:
            ending = self._train(control, unit)
            unit.require_unchanged()
            return ending
        except CannotPack as refusal:
            return Ending(outcome=Outcome.REFUSED, lanes=control.group.lanes, error=str(refusal))

    def _train(self, control: GroupControl, access: DataAccess | None = None, ranks: RankGroup | None = None) -> Ending:
        """Call the training function for a group, which in a pack reads together with others."""
        if not control.start():
            return Ending(outcome=Outcome.DONE, lanes=())
        setup = self._setup if access is None else replace(self._setup, access=access)
        return run_group(setup, control.group, control, self._load(control.group), ranks=ranks)

    def _take_ways(self) -> tuple[ChosenWay, ...]:
        """Return the ways of computing that were chosen since this was asked last."""
        ways = self._setup.strategies.export()
        fresh = tuple(way for way in ways if way not in self._told_ways)
        self._told_ways |= set(fresh)
        return fresh

    def _load(self, group: TrialGroup) -> list[LaneState] | None:
        """Return the states that a group goes on from."""
        epoch = group.lanes[0].start_epoch
        return [self._states.load(number, epoch) for number in group.numbers] if epoch else None

    def _measure(self, placement: Placement, foresee: Callable[[float], None]) -> Measured:
        group, key = placement.groups[0], placement.key
        deadline = Deadline.start(placement.seconds_left, self._clock)
        setup = replace(self._setup, deadline=deadline, num_workers=placement.num_devices)
        states = self._load(group)
        if placement.purpose is Purpose.ALONE:
            return Measured(key=key, finding=measure_alone(replace(setup, access=TimedAccess()), group.lanes, states))
        if placement.purpose is Purpose.FORESEE:
            return Measured(key=key, finding=foresee_training(setup, group.lanes[0]))
        if placement.purpose in (Purpose.START, Purpose.SCALES):
            return Measured(key=key, finding=self._check(setup, placement))
        if placement.purpose is Purpose.LOADING:
            return Measured(key=key, finding=measure_loading(setup, group, states)[0])
        profile, ending = profile_lanes(replace(setup, access=TimedAccess()), group.lanes, states, foresee=foresee)
        numbers = () if ending is None else tuple(lane.number for lane in ending.lanes)
        ending = None if ending is None else replace(ending, lanes=())
        return Measured(key=key, finding=profile, ending=ending, numbers=numbers)

    def _check(self, setup: TrainingSetup, placement: Placement) -> StartCheck | tuple[int, ...]:
        """Look at the first steps of a study with surrogates."""
        assert self._surrogate is not None
        lanes = placement.groups[0].lanes
        if placement.purpose is Purpose.START:
            return check_start(setup, self._surrogate, lanes)
        return list_possible_scales(setup, self._surrogate, lanes[0])


def _foresee(tell: Tell, placement: Placement, seconds: float) -> None:
    tell(Foreseen(key=placement.key, purpose=placement.purpose, seconds=seconds))


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
