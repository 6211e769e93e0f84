"""Groups at work: what each has done and owes, and the crew of those that train as a pack."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headwater.errors import CannotPack, StudyEnds
from headwater.trials import Decision, Ending, Lane, Report, TrialGroup

if TYPE_CHECKING:
    from headwater.train.engines import LaneState
    from headwater.train.streams import Seat

Capture: TypeAlias = "Callable[[int], LaneState | None]"
"""Copies the state of a lane, where the function could start again there."""


class Foreman(Protocol):
    """Who is told what groups do, and says what they do next."""

    def hear_epochs(self, shift: Shift, num_epochs: int) -> None:
        """Learn how many epochs a group's trials will train."""

    def hear_step(self, num_lanes: int) -> None:
        """Learn that a group took a step."""

    def hear_reports(self, shift: Shift, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        """Take the reports of a group's lanes, and decide what becomes of each."""

    def train(self, shift: Shift, seat: Seat | None) -> Ending:
        """Call the training function for a group, from its seat in a pack."""

    def hear_refusal(self, group: TrialGroup, reason: str) -> None:
        """Learn that a group must not be in a pack; it has not reported yet."""

    def hear_start(self, shift: Shift) -> None:
        """Learn that a group begins."""

    def hear_stop(self, shift: Shift) -> None:
        """Learn that a group has ended."""

    def hear_loners(self, lanes: Sequence[Lane]) -> None:
        """Let these lanes, which have left a group, train on alone."""

    def find_saved(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return lanes that are to run again as they go on from what was saved of them since they began."""

    def find_mates(self, epochs: Collection[int]) -> Sequence[TrialGroup]:
        """Return groups that can start now, to join a pack whose groups are at these epochs, one for each."""


class Shift:
    """One group at work. To its trial it is the control."""

    def __init__(self, group: TrialGroup, foreman: Foreman, bill: Bill) -> None:
        self.group = group
        self.bill = bill
        self.key = group.lanes[0].number
        self.numbers = [lane.number for lane in group.lanes]
        """The trials that are still in the group."""
        self.epoch = group.lanes[0].start_epoch
        """How many epochs they have trained."""
        self.num_epochs = 0
        """How many they train in all; 0 while that is not known."""
        self.num_steps = 0
        self.loners: list[Lane] = []
        """Those that left to train on alone, for too few were left for a group to pay."""
        self._foreman = foreman

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that are still in the group."""
        return tuple(lane for lane in self.group.lanes if lane.number in self.numbers)

    def expect(self, num_epochs: int) -> None:
        """Pass on how many epochs there will be."""
        self._foreman.hear_epochs(self, num_epochs)

    def step(self, num_lanes: int) -> None:
        """Count a step."""
        self.num_steps += 1
        self._foreman.hear_step(num_lanes)

    def report(self, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        """Charge the lanes, pass their reports on, and note who goes."""
        self.bill.share([report.number for report in reports])
        self.epoch = reports[0].epoch
        decisions = self._foreman.hear_reports(self, reports, capture)
        found = zip(reports, decisions, strict=True)
        self.numbers = [report.number for report, decision in found if decision is Decision.CONTINUE]
        return decisions


class Crew:
    """Groups that train as a pack; when one has reported, others that can start where it stands join in."""

    def __init__(self, groups: Sequence[TrialGroup], foreman: Foreman, bill: Bill) -> None:
        from headwater.train.packing import Pack

        self._foreman = foreman
        self._bill = bill
        self._pack: Pack[Shift, Ending | StudyEnds | CannotPack] = Pack(self._after_turn)
        self._epochs: dict[Shift, int] = {}
        for group in groups:
            self._load(group)

    def run(self) -> Iterator[tuple[Shift, Ending]]:
        """Train until all have ended; when the study is to end, each group comes to its next report first."""
        self._bill.open()
        with closing(self._pack):
            yield from self._run()

    def _run(self) -> Iterator[tuple[Shift, Ending]]:
        ends = []
        for shift, ending in self._pack.run():
            del self._epochs[shift]
            if isinstance(ending, StudyEnds):
                ends.append(ending)
            elif isinstance(ending, CannotPack):
                self._foreman.hear_refusal(shift.group, str(ending))
            else:
                for lane in shift.loners:
                    self._load(TrialGroup(lanes=(lane,)))
                shift.loners = []
                yield shift, ending
        if ends:
            raise ends[0]

    def _load(self, group: TrialGroup) -> None:
        shift = Shift(group, self._foreman, self._bill)
        self._epochs[shift] = shift.epoch
        self._pack.load(shift, partial(self._train, shift))

    def _train(self, shift: Shift, seat: Seat) -> Ending | StudyEnds | CannotPack:
        try:
            return self._foreman.train(shift, seat)
        except (StudyEnds, CannotPack) as end:
            return end

    def _after_turn(self, shift: Shift) -> None:
        self._bill.share(shift.numbers)
        if shift.epoch != self._epochs[shift]:
            self._epochs[shift] = shift.epoch
            for group in self._foreman.find_mates(list(self._epochs.values())):
                self._load(group)
            self._bill.open()


class Bill:
    """Shares the time that a group runs among its lanes."""

    def __init__(self, spent: dict[int, float] | None = None) -> None:
        self._since = time.perf_counter()
        self._spent: dict[int, float] = {} if spent is None else spent

    def another(self) -> Bill:
        """Return the bill of another group that runs at the same time; what is owed can be collected from either."""
        return Bill(self._spent)

    def open(self) -> None:
        """Start the clock for a group."""
        self._since = time.perf_counter()

    def share(self, numbers: Sequence[int]) -> None:
        """Charge these trials alike for the time since the last call."""
        now = time.perf_counter()
        for number in numbers:
            self._spent[number] = self._spent.get(number, 0.0) + (now - self._since) / len(numbers)
        self._since = now

    def collect(self, number: int) -> float:
        """Return what a trial owes, once."""
        return self._spent.pop(number, 0.0)
