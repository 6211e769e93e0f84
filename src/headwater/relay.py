"""How packs train for a study: in its own process, or in another one from which everything they say is passed on."""

from __future__ import annotations

import pickle
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import LineLost, StudyEnds, StudyError, TrialError
from headwater.execute import Line
from headwater.shifts import Bill, Capture, Crew, Foreman, Shift
from headwater.trials import Decision, Ending, Lane, Outcome, Report, TrialGroup

if TYPE_CHECKING:
    from headwater.train.engines import LaneState
    from headwater.train.streams import Seat

STEPS_EVERY_S = 0.1
"""So often is it passed on how many steps were taken."""


class StudySite:
    """The site of one study, which its foreman runs."""

    def __init__(self, foreman: Foreman, bill: Bill) -> None:
        self._foreman = foreman
        self._bill = bill

    def work_here(self, pack: Sequence[TrialGroup]) -> Iterator[tuple[TrialGroup, Ending]]:
        """Train a pack in this process."""
        for shift, ending in self._work(pack, self._foreman, self._bill):
            self._bill.share([lane.number for lane in ending.lanes])
            self._foreman.hear_loners(shift.loners)
            yield shift.group, ending

    def work_away(self, pack: Sequence[TrialGroup], line: Line) -> None:
        """Train a pack in this process for a study in another one."""
        from headwater.train.machine import use_one_thread

        use_one_thread()
        try:
            for shift, ending in self._work(pack, _Relay(self._foreman, line), Bill()):
                numbers = [lane.number for lane in ending.lanes]
                has_parted = ending.question is not None
                line.send(("ended", shift.key, numbers, replace(ending, lanes=(), question=None), has_parted))
        except (StudyEnds, LineLost):
            pass  # the study said so, or is gone
        except BaseException as cause:  # whatever it is, it is the study's to say
            line.send(("raised", _portable(cause)))

    def attend(self, pack: Sequence[TrialGroup], line: Line) -> StudyAttendant:
        """Answer the process that trains this pack."""
        return StudyAttendant(pack, line, self._foreman, self)

    def another_bill(self) -> Bill:
        """Return a bill for what another process trains."""
        return self._bill.another()

    def _work(self, pack: Sequence[TrialGroup], foreman: Foreman, bill: Bill) -> Iterator[tuple[Shift, Ending]]:
        if len(pack) > 1:
            yield from Crew(pack, foreman, bill).run()
            return
        shift = Shift(pack[0], foreman, bill)
        bill.open()
        yield shift, foreman.train(shift, None)


class _Relay:
    """The foreman that groups in another process have: all but the training itself it asks the study about."""

    def __init__(self, foreman: Foreman, line: Line) -> None:
        self._foreman = foreman
        self._line = line
        self._num_steps = 0
        self._since = time.perf_counter()
        self._fault: Exception | None = None

    def hear_epochs(self, shift: Shift, num_epochs: int) -> None:
        self._line.send(("epochs", shift.key, num_epochs))

    def hear_step(self, num_lanes: int) -> None:
        self._num_steps += num_lanes
        if time.perf_counter() - self._since > STEPS_EVERY_S:
            self._pass_steps()

    def hear_reports(self, shift: Shift, reports: Sequence[Report], capture: Capture) -> list[Decision]:
        self._pass_steps()
        self._line.send(("reports", shift.key, reports, shift.num_steps))
        while True:
            kind, content = self._line.receive()
            if kind == "capture":
                self._line.send(self._capture(content, capture))
            elif kind == "end":
                raise StudyEnds(content)
            elif kind == "fault":
                raise self._fault or TrialError(content)
            else:
                return list(content)

    def _capture(self, number: int, capture: Capture) -> tuple[str, Any]:
        """Return a lane's state as it is sent, or what there is to say instead."""
        from headwater.train.checkpoint import pack_state

        try:
            state = capture(number)
            return "state", None if state is None else pack_state(state)
        except Exception as cause:  # the trial's own code may be in it: then it is the trial's result
            self._fault = cause
            return "fault", str(cause)

    def train(self, shift: Shift, seat: Seat | None) -> Ending:
        return self._foreman.train(shift, seat)

    def hear_refusal(self, group: TrialGroup, reason: str) -> None:
        self._line.send(("refusal", group.lanes[0].number, reason))

    def hear_start(self, shift: Shift) -> None:
        """Pass nothing on: the study knows what it has started."""

    def hear_stop(self, shift: Shift) -> None:
        """Pass nothing on: the ending will tell."""

    def find_saved(self, lanes: Sequence[Lane]) -> list[Lane]:
        return list(lanes)  # what was saved is known to the study alone

    def hear_loners(self, lanes: Sequence[Any]) -> None:
        """Leave them to the study, which has their states."""

    def find_mates(self, epochs: Collection[int]) -> Sequence[TrialGroup]:
        return ()  # what waits is known to the study alone

    def _pass_steps(self) -> None:
        self._line.send(("steps", self._num_steps))
        self._num_steps, self._since = 0, time.perf_counter()


class StudyAttendant:
    """Takes what a process says to the study's foreman, and its answers back."""

    def __init__(self, pack: Sequence[TrialGroup], line: Line, foreman: Foreman, site: StudySite) -> None:
        self._line = line
        self._foreman = foreman
        self._site = site
        bill = site.another_bill()
        self._shifts = {shift.key: shift for shift in (Shift(group, foreman, bill) for group in pack)}
        for shift in self._shifts.values():
            foreman.hear_start(shift)

    @property
    def is_done(self) -> bool:
        """Whether all groups of the pack have ended."""
        return not self._shifts

    def hear(self, message: Any) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in a message, answer it if it is a question, and yield the groups that it says have ended."""
        match message:
            case ("epochs", key, num_epochs):
                self._shifts[key].expect(num_epochs)
            case ("steps", num_steps):
                self._foreman.hear_step(num_steps)
            case ("reports", key, reports, num_steps):
                self._answer(self._shifts[key], reports, num_steps)
            case ("refusal", key, reason):
                self._foreman.hear_refusal(self._shifts.pop(key).group, reason)
            case ("ended", key, numbers, ending, has_parted):
                yield from self._end(key, numbers, ending, has_parted)
            case ("raised", cause):
                raise cause

    def lose(self, reason: str) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in that the process is gone, and yield an ending for each group that had none.

        Which group of a pack is to blame cannot be told, so none is: they train one by one from now on.
        """
        is_pack = len(self._shifts) > 1
        for key, shift in list(self._shifts.items()):
            if is_pack and shift.numbers:
                del self._shifts[key]
                self._foreman.hear_stop(shift)
                self._foreman.hear_refusal(TrialGroup(lanes=shift.lanes), reason)
                continue
            outcome = Outcome.LOST if shift.numbers else Outcome.DONE
            yield from self._end(key, shift.numbers, Ending(outcome=outcome, lanes=(), error=reason), has_parted=False)

    def _answer(self, shift: Shift, reports: Sequence[Report], num_steps: int) -> None:
        shift.num_steps = num_steps
        try:
            decisions = shift.report(reports, self._capture)
        except StudyEnds as end:
            del self._shifts[shift.key]
            with suppress(LineLost):
                self._line.send(("end", str(end)))
            raise
        except TrialError as cause:  # of its state; whatever else it is, the study ends
            self._line.send(("fault", str(cause)))
            return
        self._line.send(("decisions", decisions))

    def _capture(self, number: int) -> LaneState | None:
        from headwater.train.checkpoint import unpack_state

        try:
            self._line.send(("capture", number))
            kind, content = self._line.receive()
        except LineLost:
            return None  # the next message will show it
        if kind == "fault":
            raise TrialError(content)
        return None if content is None else unpack_state(content)

    def _end(
        self, key: int, numbers: Sequence[int], ending: Ending, has_parted: bool
    ) -> Iterator[tuple[TrialGroup, Ending]]:
        """Yield how a group ended; one whose lanes part runs again here, for the study to learn by what they do."""
        shift = self._shifts.pop(key)
        shift.bill.share(numbers)
        self._foreman.hear_stop(shift)
        self._foreman.hear_loners(shift.loners)
        shift.numbers = list(numbers)
        if has_parted:
            yield from self._site.work_here([TrialGroup(lanes=tuple(self._foreman.find_saved(shift.lanes)))])
        else:
            yield shift.group, replace(ending, lanes=shift.lanes)


def _portable(cause: BaseException) -> BaseException:
    """Return the exception if it can be sent, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(cause))  # noqa: S301 - our own, of a moment ago
    except Exception:  # of the many ways in which that can fail
        return StudyError(f"{type(cause).__name__}: {cause}")
    return cause
