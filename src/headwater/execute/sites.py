"""What executors are given to run packs with: how they train here, or in another process that reports here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from headwater.execute.lines import Line
from headwater.trials import Ending, Outcome, TrialGroup


class Attendant(Protocol):
    """Whoever speaks for the study with a process that trains a pack."""

    @property
    def is_done(self) -> bool:
        """Whether all groups of the pack have ended."""

    def hear(self, message: Any) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in a message, answer it if it is a question, and yield the groups that it says have ended.

        Raises:
            StudyEnds: The study is to end; the process has been told.
            LineLost: The process is gone.
        """

    def lose(self, reason: str, outcome: Outcome) -> Iterator[tuple[TrialGroup, Ending]]:
        """Take in that the process is gone, and yield an ending of this outcome for each group that had none."""


class Site(Protocol):
    """Where packs are trained."""

    def work_here(self, pack: Sequence[TrialGroup]) -> Iterator[tuple[TrialGroup, Ending]]:
        """Train a pack in this process."""

    def work_away(self, pack: Sequence[TrialGroup], line: Line) -> None:
        """Train a pack in a process that was forked for it; reports and questions go through the line."""

    def attend(self, pack: Sequence[TrialGroup], line: Line) -> Attendant:
        """Return who answers the process that trains this pack."""


class Executor(Protocol):
    """Runs packs, and reports how their groups ended."""

    num_workers: int
    """How many packs it runs at the same time."""

    def run(self, packs: Iterable[Sequence[TrialGroup]], site: Site) -> Iterator[tuple[TrialGroup, Ending]]:
        """Run the packs, and yield each group with its ending as it comes.

        The packs are taken one by one, so that whoever supplies them may add more after each ending.
        """
