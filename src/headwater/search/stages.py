"""Synchronous schedules: whole stages of trials, each compared when all of it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headwater.search.ledger import Ledger
from headwater.trials import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a trial reached after so many epochs; the training function's own end where `epochs` is None."""

    number: int
    epochs: int | None
    score: float
    others: tuple[float, ...] = ()
    """Its scores in the further metrics that count, where there are any."""
    violations: tuple[float, ...] = ()
    """By how much it breaks each constraint, where there are any; 0 or less where it keeps it."""


Course: TypeAlias = Generator[Sequence[Segment], Sequence[float], Sequence[Lesson]]
"""Yields one stage after the other, is sent the scores of each, and returns what there was to learn."""

Teach: TypeAlias = Callable[[Lesson], None]


class Stages:
    """Runs courses, each as fast as its scores come in.

    Course n begins when course n - `at_once` has ended and its lessons are taught, and no lesson of a later one is:
    so what is known at the beginning of a course does not depend on which of the others is fastest. Where the order of
    arrival counts, another course begins as soon as any has ended.
    """

    def __init__(self, courses: Iterator[Course], ledger: Ledger, at_once: int, teach: Teach) -> None:
        self._courses = courses
        self._ledger = ledger
        self._at_once = at_once
        self._teach = teach
        self._open: deque[_Progress] = deque()

    def advance(self) -> None:
        """Compare every stage that is done, and ask for the next."""
        while True:
            while len(self._open) < self._at_once and (course := next(self._courses, None)) is not None:
                self._open.append(_Progress(course, self._ledger))
            for progress in self._open:
                progress.advance()
            if (ended := self._find_ended()) is None:
                return
            self._open.remove(ended)
            for lesson in ended.lessons or ():
                self._teach(lesson)

    def _find_ended(self) -> _Progress | None:
        """Return the course to learn from next; None while it is not over."""
        first = list(self._open) if self._ledger.is_by_arrival else list(self._open)[:1]
        return next((progress for progress in first if progress.lessons is not None), None)


class _Progress:
    """Where one course stands."""

    def __init__(self, course: Course, ledger: Ledger) -> None:
        self.lessons: Sequence[Lesson] | None = None
        self._course = course
        self._ledger = ledger
        self._missing: deque[Segment] = deque()
        self._stage = self._begin(partial(next, course))

    def advance(self) -> None:
        while self.lessons is None and not self._is_waiting():
            scores = [self._ledger.score(segment.number, segment.until) for segment in self._stage]
            known = [score for score in scores if score is not None]
            assert len(known) == len(scores)
            self._stage = self._begin(partial(self._course.send, known))

    def _is_waiting(self) -> bool:
        while self._missing and self._ledger.score(self._missing[0].number, self._missing[0].until) is not None:
            self._missing.popleft()
        return bool(self._missing)

    def _begin(self, step: Callable[[], Sequence[Segment]]) -> Sequence[Segment]:
        try:
            stage = step()
        except StopIteration as end:
            self.lessons = end.value
            return ()
        for segment in stage:
            self._ledger.want(segment)
        self._missing = deque(stage)
        return stage
