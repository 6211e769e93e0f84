"""The executor of this machine's cores: as many packs at a time as there are workers, each in a process of its own.

A process is forked when its pack's turn comes, so that it finds everything that was learnt until then in its memory. It
trains with one thread. A process that dies takes nothing with it but its pack.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from headwater.errors import StudyEnds, StudyError
from headwater.execute.sites import Attendant, Site
from headwater.trials import Ending, TrialGroup


class ProcessExecutor:
    """Runs packs side by side."""

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise StudyError(f"num_workers is {num_workers}; it must be at least 1")
        self.num_workers = num_workers

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
        self._hands: dict[Connection, _Hand] = {}

    def fill(self) -> bool:
        """Start as many processes as there are packs and places for; tell whether any is at work."""
        try:
            while self.end is None and len(self._hands) < self._num_places and (pack := next(self._waiting, None)):
                hand = _Hand(pack, self._site)
                self._hands[hand.line] = hand
        except StudyEnds as cause:
            self.end = cause
        return bool(self._hands)

    def hear(self) -> Iterator[tuple[TrialGroup, Ending]]:
        """Wait until processes have something to say, and yield the groups that have ended."""
        for line in wait(list(self._hands)):
            assert isinstance(line, Connection)
            try:
                yield from self._hands[line].hear()
            except StudyEnds as cause:
                self.end = self.end or cause
            if self._hands[line].is_gone:
                del self._hands[line]

    def clear(self) -> None:
        """End every process that is left."""
        for hand in self._hands.values():
            hand.kill()


class _Hand:
    """A process that trains a pack, and who attends to it here."""

    def __init__(self, pack: Sequence[TrialGroup], site: Site) -> None:
        context = multiprocessing.get_context("fork")
        self.line, theirs = context.Pipe()
        self.is_gone = False
        self._process = context.Process(target=_work, args=(pack, site, theirs, self.line))
        self._process.start()
        theirs.close()
        self._attendant: Attendant = site.attend(pack, self.line)

    def hear(self) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in one message, or that there will be no more."""
        try:
            message = self.line.recv()
        except (EOFError, ConnectionResetError):
            self.is_gone = True
            self.line.close()
            self._process.join()
            yield from self._attendant.lose(_explain(self._process.exitcode))
        else:
            yield from self._attendant.hear(message)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.line.close()


def _work(pack: Sequence[TrialGroup], site: Site, line: Connection, parents: Connection) -> None:
    """Train a pack, in the process that was made for it."""
    parents.close()  # so that this process notices if its parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study hears of it, and says when to end
    sys.stdout, sys.stderr = (
        sys.__stdout__,
        sys.__stderr__,
    )  # a display that the parent has put in their place is its own
    try:
        site.work_away(pack, line)
    except (BrokenPipeError, EOFError, ConnectionResetError):
        sys.exit(1)


def _explain(status: int | None) -> str:
    """Say how a process ended that should not have."""
    if status is None or status >= 0:
        return f"the process that trained it ended with status {status}"
    name = signal.Signals(-status).name
    cause = "; the machine may have run out of memory" if -status == signal.SIGKILL else ""
    return f"the process that trained it was ended by {name}{cause}"
