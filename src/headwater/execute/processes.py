"""The executor of this machine's cores: as many packs at a time as there are workers, each in a process of its own.

A process is forked when its pack's turn comes, so that it finds everything that was learnt until then in its memory. It
trains with one thread. A process that dies takes nothing with it but its pack.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from headwater.errors import LineLost, StudyEnds
from headwater.execute.lines import Line
from headwater.execute.sites import Attendant, Site
from headwater.settings import read_whole
from headwater.trials import Ending, Outcome, TrialGroup

LOOK_EVERY_S = 1.0
"""So often is it seen whether processes that say nothing are still there."""
OOM_SCORE = 500
"""How willing a process is to be ended by the system, of 1000; the study's own is usually 0."""
PARTING_S = 5.0
"""So long may a process take to end when its work is done."""


class ProcessExecutor:
    """Runs packs side by side."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = read_whole("num_workers", num_workers)

    def run(self, packs: Iterable[Sequence[TrialGroup]], site: Site) -> Iterator[tuple[TrialGroup, Ending]]:
        """Run the packs, and yield each group with its ending as it comes.

        When the study is to end, no more packs are started, and those under way come to their next report.
        """
        floor = _Floor(iter(packs), site, self.num_workers)
        try:
            while floor.fill():
                yield from floor.hear()
        finally:
            floor.clear()
        if floor.end is not None:
            raise floor.end


class _Floor:
    """The processes at work, and the packs that wait for one."""

    def __init__(self, waiting: Iterator[Sequence[TrialGroup]], site: Site, num_places: int) -> None:
        self.end: StudyEnds | None = None
        self._waiting = waiting
        self._site = site
        self._num_places = num_places
        self._hands: list[_Hand] = []
        self._leaving: list[_Hand] = []

    def fill(self) -> bool:
        """Start as many processes as there are packs and places for; tell whether any is at work."""
        try:
            while self.end is None and len(self._hands) < self._num_places and (pack := next(self._waiting, None)):
                self._await_leaving()
                self._hands.append(_Hand(pack, self._site, [hand.line for hand in self._hands]))
        except StudyEnds as cause:
            self.end = cause
        return bool(self._hands)

    def hear(self) -> Iterator[tuple[TrialGroup, Ending]]:
        """Wait until processes have something to say, and yield the groups that have ended."""
        wait([hand.line.fileno() for hand in self._hands], LOOK_EVERY_S)
        for hand in list(self._hands):
            try:
                yield from hand.hear()
            except StudyEnds as cause:
                self.end = self.end or cause
            if hand.is_done:
                self._hands.remove(hand)
                self._leaving.append(hand)

    def clear(self) -> None:
        """End every process that is left, at once or, if it has done its work, when it has had time to clear up."""
        for hand in self._hands:
            hand.kill()
        self._await_leaving()

    def _await_leaving(self) -> None:
        """Wait until those that have done their work are gone, and with them the memory that they took."""
        for hand in self._leaving:
            hand.leave()
        self._leaving = []


class _Hand:
    """A process that trains a pack, and who attends to it here."""

    def __init__(self, pack: Sequence[TrialGroup], site: Site, others: Sequence[Line]) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        self.line = Line(ours)
        self._is_lost = False
        self._process = context.Process(target=_work, args=(pack, site, Line(theirs), [self.line, *others]))
        self._process.start()
        theirs.close()
        self._attendant: Attendant = site.attend(pack, self.line)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to hear."""
        return self._is_lost or self._attendant.is_done

    def hear(self) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in a message if there is one, or that there will be none."""
        is_alive = self._process.is_alive()  # asked first: what it has said before it ended is still to be heard
        try:
            if self.line.has_message():
                yield from self._attendant.hear(self.line.receive())
            elif not is_alive:  # and what it has started itself may hold its end of the line
                raise LineLost
        except LineLost:
            self._is_lost = True
            self._process.join()
            yield from self._attendant.lose(*_explain(self._process.exitcode))

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.join()
        self.line.close()

    def leave(self) -> None:
        """Let the process come to its end, but not for long."""
        self._process.join(PARTING_S)
        self.kill()


def _work(pack: Sequence[TrialGroup], site: Site, line: Line, others: Sequence[Line]) -> None:
    """Train a pack, in the process that was made for it."""
    for other in others:  # the study's ends: while they are open here, nobody would notice that it is gone
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study hears of it, and says when to end
    _be_first_to_go()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not the study's display, if it has one
    try:
        site.work_away(pack, line)
    except LineLost:
        sys.exit(1)


def _explain(status: int | None) -> tuple[str, Outcome]:
    """Say how a process ended that should not have; one that the system kills has most likely run out of memory."""
    if status is None or status >= 0:
        return f"the process that trained it ended with status {status}", Outcome.RAISED
    text = f"the process that trained it was ended by {signal.Signals(-status).name}"
    if -status == signal.SIGKILL:
        return f"{text}; the machine has most likely run out of memory", Outcome.OUT_OF_MEMORY
    return text, Outcome.RAISED


def _be_first_to_go() -> None:
    """Where memory runs out, let the system end this process and not the study, which starts another."""
    with suppress(OSError):  # of another system than Linux, or one that does not allow it
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
