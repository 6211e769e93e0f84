from __future__ import annotations

from headwater.search import Problem
from headwater.search.ledger import INFEASIBLE, Ledger
from headwater.search.timeline import Timeline
from headwater.space import Space
from headwater.trials import Report, Segment, Status

PROBLEM = Problem(space=Space({"lr": 0.1}), metric="loss", mode="min")


class Script:
    """Starts what it was told to, and notes what ends."""

    def __init__(self, *segments: tuple[int, int | None]) -> None:
        self.ended: list[tuple[int, int | None]] = []
        self._segments = [Segment(number=number, config={}, until=until) for number, until in segments]

    def start(self) -> Segment | None:
        return self._segments.pop(0) if self._segments else None

    def take(self, segment: Segment, score: float) -> None:
        self.ended.append((segment.number, segment.until))


def train(ledger: Ledger, number: int, epochs: range, status: Status = Status.PAUSED) -> None:
    for epoch in epochs:
        ledger.note(Report(number=number, epoch=epoch, metrics={"loss": 1.0}))
    ledger.end(number, status)


def test_segments_end_in_virtual_order_with_equals_by_number() -> None:
    script = Script((0, 4), (1, 2), (2, 2), (1, 3), (3, 1))
    ledger = Ledger(PROBLEM)
    timeline = Timeline(script, ledger, concurrency=3)
    timeline.advance()
    assert [(segment.number, segment.until) for segment in ledger.take(9)] == [(0, 4), (1, 2), (2, 2)]
    train(ledger, 0, range(1, 5))
    train(ledger, 2, range(1, 3))
    timeline.advance()
    assert script.ended == []
    train(ledger, 1, range(1, 3))
    timeline.advance()
    assert script.ended == [(1, 2), (2, 2)]
    assert [(segment.number, segment.until) for segment in ledger.take(9)] == [(1, 3), (3, 1)]
    train(ledger, 1, range(3, 4))
    train(ledger, 3, range(1, 2))
    timeline.advance()
    assert script.ended == [(1, 2), (2, 2), (1, 3), (3, 1), (0, 4)]


def test_a_trial_that_fails_at_once_takes_as_long_as_one_that_does_not() -> None:
    script = Script((0, 3), (1, 2))
    ledger = Ledger(PROBLEM)
    timeline = Timeline(script, ledger, concurrency=2)
    timeline.advance()
    ledger.take(2)
    ledger.end(0, Status.FAILED)
    timeline.advance()
    assert script.ended == []
    train(ledger, 1, range(1, 3))
    timeline.advance()
    assert script.ended == [(1, 2), (0, 3)]


def test_a_result_counts_when_its_segment_has_ended() -> None:
    ledger = Ledger(PROBLEM)
    ledger.want(Segment(number=0, config={}, until=1))
    ledger.take(1)
    ledger.note(Report(number=0, epoch=1, metrics={"loss": 0.5}))
    assert ledger.score(0, 1) is None
    ledger.end(0, Status.PAUSED)
    assert ledger.score(0, 1) == 0.5
    assert ledger.score(0, 2) is None


def test_the_score_of_a_trial_that_ended_early() -> None:
    ledger = Ledger(PROBLEM)
    for number, status in enumerate((Status.COMPLETED, Status.STOPPED, Status.FAILED)):
        train(ledger, number, range(1, 3), status)
    assert [ledger.score(number, 2) for number in range(3)] == [1.0, 1.0, 1.0]
    assert [ledger.score(number, 5) for number in range(3)] == [1.0, INFEASIBLE, INFEASIBLE]
    assert [ledger.score(number, None) for number in range(3)] == [1.0, 1.0, INFEASIBLE]
