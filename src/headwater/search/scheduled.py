"""Searchers that follow a schedule of their own, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from headwater.search.ledger import INFEASIBLE, Ledger
from headwater.search.protocol import Stage
from headwater.trials import Decision, Report, Segment, Status


class Schedule(Protocol):
    """Decides from scores, in an order of its own, what is wanted next."""

    def advance(self) -> None:
        """Go on as far as the scores in the ledger allow, asking the ledger for segments on the way.

        Where a score is missing the schedule waits for it, however many others there are, so what it asks for
        depends on scores alone, never on the order in which they arrive; unless that is the order which counts.
        """


Judge: TypeAlias = Callable[[Report], Decision]
"""Says at a report of a sound trial whether it goes on."""


def go_on(report: Report) -> Decision:
    """Let every trial go on to the end of its segment."""
    return Decision.CONTINUE


class ScheduledSearch:
    """A searcher made of a schedule, which decides, and a ledger, which remembers.

    The schedule is a function of the scores, and the ledger can be filled from the record, so a search that is built
    from the record goes on as if it had never been interrupted, whatever the schedule is. Where the order of arrival
    counts, the schedule goes on after each end of a segment, now and when it is built from the record.
    """

    def __init__(
        self,
        schedule: Schedule,
        ledger: Ledger,
        judge: Judge = go_on,
        list_brackets: Callable[[], Sequence[Sequence[Stage]] | None] = lambda: None,
    ) -> None:
        self._schedule = schedule
        self._ledger = ledger
        self._judge = judge
        self._list_brackets = list_brackets  # of a billion trials that takes its time, and is seldom asked for
        if ledger.is_by_arrival:
            schedule.advance()
            for _ in ledger.replay():
                schedule.advance()

    def propose(self, count: int) -> Sequence[Segment]:
        """Return what is wanted next, as far as the results that are in can tell."""
        self._schedule.advance()
        return self._ledger.take(count)

    def observe(self, report: Report) -> Decision:
        """Keep the report; a trial whose metric is no finite number ends here."""
        if self._ledger.note(report) == INFEASIBLE:
            return Decision.STOP
        return self._judge(report)

    def finish(self, number: int, status: Status) -> None:
        """Keep how the segment ended."""
        self._ledger.end(number, status)
        if self._ledger.is_by_arrival:
            self._schedule.advance()

    def take_dropped(self) -> Sequence[int]:
        """Return the paused trials that were dropped since the last call and will never be proposed again."""
        self._schedule.advance()
        return self._ledger.take_dropped()

    def stages(self) -> Sequence[Sequence[Stage]] | None:
        """Return what the schedule is going to ask for, if that is known before any result."""
        return self._list_brackets()
