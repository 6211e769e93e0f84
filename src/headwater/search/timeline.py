"""Virtual time: a fixed number of imagined workers, on which an epoch takes one unit of time; or as results arrive."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from headwater.search.ledger import Ledger
from headwater.trials import Segment


class Policy(Protocol):
    """Decides what a worker does next."""

    def start(self) -> Segment | None:
        """Return what a free worker should train; None while there is nothing to do."""

    def take(self, segment: Segment, score: float) -> None:
        """Learn what came of a segment."""


class Timeline:
    """Runs an asynchronous policy on `concurrency` imagined workers.

    Each segment takes as long as it has epochs, or one unit if it has no end, whether or not the trial fails on the
    way. So it is known beforehand which segment ends next (of those that end together, that of the lowest number), and
    the policy gets the scores in that order. What really runs at once, and what ends first, changes nothing.

    Where the order of arrival counts, the policy gets each score as it comes, and `concurrency` is how many segments
    are wanted at a time.
    """

    def __init__(self, policy: Policy, ledger: Ledger, concurrency: int) -> None:
        self._policy = policy
        self._ledger = ledger
        self._concurrency = concurrency
        self._now = 0
        self._agenda: list[tuple[int, int]] = []
        self._segments: dict[int, Segment] = {}
        self._reached: dict[int, int] = {}

    def advance(self) -> None:
        """Give the policy every score whose turn has come, and start what it asks for."""
        find = self._find_arrived if self._ledger.is_by_arrival else self._find_next
        self._start_all()
        while (found := find()) is not None:
            segment, score = found
            del self._segments[segment.number]
            self._reached[segment.number] = segment.until or 0
            self._policy.take(segment, score)
            self._start_all()

    def _find_next(self) -> tuple[Segment, float] | None:
        """Return the segment that ends next in virtual time with its score; None while that is missing."""
        if not self._agenda:
            return None
        time, number = self._agenda[0]
        segment = self._segments[number]
        score = self._ledger.score(number, segment.until)
        if score is None:
            return None
        heappop(self._agenda)
        self._now = time
        return segment, score

    def _find_arrived(self) -> tuple[Segment, float] | None:
        """Return the segment that ended first of those not taken yet, with its score; None if there is none."""
        while (number := self._ledger.take_arrived()) is not None:
            segment = self._segments.get(number)
            score = None if segment is None else self._ledger.score(number, segment.until)
            if segment is not None and score is not None:
                return segment, score
        return None

    def _start_all(self) -> None:
        while len(self._segments) < self._concurrency and (segment := self._policy.start()) is not None:
            number, until = segment.number, segment.until
            num_units = 1 if until is None else until - self._reached.get(number, 0)
            self._segments[number] = segment
            self._ledger.want(segment)
            if not self._ledger.is_by_arrival:
                heappush(self._agenda, (self._now + num_units, number))
