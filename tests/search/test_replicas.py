"""Trials under several seeds, as the searcher around which they are wrapped sees them."""

from __future__ import annotations

from headwater.search.replicas import Replicated
from headwater.trials import Decision, Report, Segment, Status


def test_a_stopped_trial_stops_all_its_replicas() -> None:
    class StopsAtOnce:
        def propose(self, count: int) -> list[Segment]:
            return [Segment(number=0, config={})]

        def observe(self, report: Report) -> Decision:
            return Decision.STOP

        def finish(self, number: int, status: Status) -> None:
            pass

    replicated = Replicated(StopsAtOnce(), 3)
    first = [replicated.observe(Report(number=n, epoch=1, metrics={"loss": 1.0})) for n in range(3)]
    later = [replicated.observe(Report(number=n, epoch=2, metrics={"loss": 1.0})) for n in range(2)]
    assert first == [Decision.CONTINUE, Decision.CONTINUE, Decision.STOP]
    assert later == [Decision.STOP, Decision.STOP]
