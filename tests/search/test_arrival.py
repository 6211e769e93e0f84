"""Results in the order of their arrival: nothing waits, and what the record holds is decided again as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.search.harness import Curve, SearchLoop
from tests.search.test_searchers import BUILDS, SLOW, climb, make_problem, stumble

from headwater.search import ASHA, Hyperband, Problem, ResultOrder, Searcher
from headwater.search.replicas import Replicated
from headwater.trials import Arrival, Report, Segment, Status, TrialRecord, average_replicas, join_arrivals

every_searcher = pytest.mark.parametrize("name", sorted(BUILDS))


def open_loop(name: str, curve: Curve = climb, num_trials: int = 9) -> SearchLoop:
    problem = replace(make_problem(name, num_trials=num_trials), order=ResultOrder.ARRIVAL)
    return SearchLoop(problem, curve, num_epochs=9)


def run(name: str, curve: Curve = climb, num_trials: int = 9, **machine: Any) -> Sequence[TrialRecord]:
    return open_loop(name, curve, num_trials).run(BUILDS[name], **machine)


def problem(num_trials: int | None = None, **settings: Any) -> Problem:
    return replace(make_problem("asha", num_trials=num_trials), order=ResultOrder.ARRIVAL, **settings)


def end(searcher: Searcher, segment: Segment, value: float, status: Status = Status.PAUSED) -> None:
    """Let a segment of one epoch come to its end."""
    assert segment.until is not None
    searcher.observe(Report(number=segment.number, epoch=segment.until, metrics={"a": value}))
    searcher.finish(segment.number, status)


@every_searcher
@pytest.mark.parametrize("curve", [climb, stumble])
def test_a_searcher_that_knows_the_record_alone_takes_over_at_any_moment(name: str, curve: Curve) -> None:
    for seed in range(2):
        whole = run(name, curve, slots=3, seed=seed)
        num_reports = sum(len(record.history) for record in whole)
        for cut in range(1 + seed, num_reports + 1, 17 if name in SLOW else 3):
            assert run(name, curve, slots=3, seed=seed, rebuild_at=cut) == whole, f"seed {seed}, report {cut}"


@every_searcher
def test_a_search_that_is_cut_again_and_again_comes_to_its_end(name: str) -> None:
    study = open_loop(name, stumble)
    for seed in range(12):
        before = {number: record.history for number, record in study.records.items()}
        records = study.run(BUILDS[name], slots=4, seed=seed, max_reports=7)
        after = {record.number: record for record in records}
        assert all(after[number].history[: len(history)] == history for number, history in before.items())
    study.run(BUILDS[name], slots=4)
    assert len(study.records) == 9
    assert all(record.status is not Status.RUNNING for record in study.records.values())


@pytest.mark.parametrize("name", ["asha", "asha of tpe", "asha, stopping", "bohb, two at once"])
def test_the_order_of_results_matters(name: str) -> None:
    assert len({repr(run(name, num_trials=30, slots=5, seed=seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize("build", [ASHA(concurrency=1, reduction=2), ASHA(concurrency=1, promote=False)])
def test_with_one_trial_at_a_time_there_is_but_one_order(build: ASHA) -> None:
    by_arrival, virtual = (SearchLoop(replace(problem(9), order=order), climb, 9).run(build) for order in ResultOrder)
    assert by_arrival == virtual


def test_a_trial_that_takes_forever_holds_nobody_up() -> None:
    build = ASHA(concurrency=2, reduction=2, max_epochs=4)
    searcher, in_virtual_order = build(problem(9)), build(replace(problem(9), order=ResultOrder.VIRTUAL))
    for one in (searcher, in_virtual_order):
        slow, fast = one.propose(9)
        assert (slow.number, fast.number) == (0, 1)
        end(one, fast, 0.5)
    assert in_virtual_order.propose(9) == []
    reached = {}
    while segments := searcher.propose(9):
        assert [segment.number for segment in segments] != [0]
        for segment in segments:
            reached[segment.number] = segment.until
            end(searcher, segment, segment.number / 10)
    assert sorted(reached) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(until or 0 for until in reached.values()) == 4, "nobody was promoted to the top"


def test_another_bracket_begins_when_any_has_ended() -> None:
    build = Hyperband(concurrency=2, reduction=3, max_epochs=3)
    counts = {}
    for order in ResultOrder:
        searcher = build(replace(problem(20), order=order))
        first = searcher.propose(99)
        later = [segment for segment in first if segment.until == 3]  # the second bracket trains to the end at once
        assert later
        for segment in later:
            end(searcher, segment, 0.5, Status.COMPLETED)
        counts[order] = len(searcher.propose(99))
    assert counts[ResultOrder.VIRTUAL] == 0
    assert counts[ResultOrder.ARRIVAL] > 0


def test_trials_beyond_those_of_the_record_come_after_them() -> None:
    study = open_loop("asha, two at once", num_trials=4)
    before = {record.number: record for record in study.run(BUILDS["asha, two at once"], slots=2, seed=3)}
    after = study.run(BUILDS["asha, two at once"], num_trials=9, slots=2, seed=4)
    assert len(after) == 9
    assert all(after[number].config == record.config for number, record in before.items())
    assert all(after[number].history[: record.epochs] == record.history for number, record in before.items())


def test_a_trial_under_several_seeds_arrives_with_its_last_replica() -> None:
    def arrive(number: int, epoch: int = 1, status: Status = Status.PAUSED) -> Arrival:
        return Arrival(number=number, epoch=epoch, status=status)

    ends = [arrive(0), arrive(3), arrive(2), arrive(1), arrive(2, 3), arrive(3, 3, Status.FAILED), arrive(4)]
    assert join_arrivals(ends, 1) == tuple(ends)
    assert join_arrivals(ends, 2) == (arrive(1), arrive(0), arrive(1, 3, Status.FAILED))


def test_replicas_are_replayed_too() -> None:
    build = ASHA(concurrency=2, reduction=2, max_epochs=4)
    arrivals: list[Arrival] = []
    known: dict[int, TrialRecord] = {}
    live = Replicated(build(problem(6)), 2)
    running: dict[int, Segment] = {segment.number: segment for segment in live.propose(99)}
    rng = Random(5)
    for _ in range(14):
        segment = running.pop(rng.choice(sorted(running)))
        assert segment.until is not None
        record = known.get(segment.number) or TrialRecord(
            number=segment.number, config=segment.config, status=Status.PAUSED
        )
        for epoch in range(record.epochs + 1, segment.until + 1):
            report = Report(number=segment.number, epoch=epoch, metrics={"a": rng.random()})
            live.observe(report)
            record = replace(record, history=(*record.history, report))
        known[segment.number] = record
        arrivals.append(Arrival(number=segment.number, epoch=segment.until, status=Status.PAUSED))
        live.finish(segment.number, Status.PAUSED)
        running |= {one.number: one for one in live.propose(99)}
        records = tuple(
            known.get(number) or TrialRecord(number=number, config=running[number].config, status=Status.RUNNING)
            for number in sorted(known.keys() | running.keys())
        )
        asked = problem(6, known=average_replicas(records, 2), arrivals=join_arrivals(arrivals, 2))
        rebuilt = Replicated(build(asked), 2, records)
        assert {one.number: one for one in rebuilt.propose(99)} == running
