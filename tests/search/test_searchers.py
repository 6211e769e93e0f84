"""Conformance: every searcher keeps the contract of `Searcher`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from headwater.search import SEARCHES, Problem, Searcher, build_searcher
from headwater.space import Space, choice, randint
from headwater.trials import Decision, Report, Segment, Status, TrialRecord

FINITE = Space({"depth": randint(1, 6), "act": choice(["relu", "gelu"]), "width": 8})

every_searcher = pytest.mark.parametrize("name", sorted(SEARCHES))


def build(
    name: str, space: Space = FINITE, *, seed: int = 7, num_trials: int | None = 6, known: Sequence[TrialRecord] = ()
) -> Searcher:
    problem = Problem(space=space, metric="a", mode="max", seed=seed, num_trials=num_trials, known=tuple(known))
    return build_searcher(name, problem)


def run_search(searcher: Searcher, at_once: int = 4, num_epochs: int = 3) -> Iterator[Segment]:
    """Train as the loop would, without training."""
    while segments := searcher.propose(at_once):
        yield from segments
        for epoch in range(1, num_epochs + 1):
            for segment in segments:
                searcher.observe(Report(number=segment.number, epoch=epoch, metrics={"a": float(epoch)}))
        for segment in segments:
            searcher.finish(segment.number, Status.COMPLETED)


def as_record(segment: Segment, status: Status) -> TrialRecord:
    return TrialRecord(number=segment.number, config=segment.config, status=status)


@every_searcher
def test_a_searcher_satisfies_the_protocol(name: str) -> None:
    assert isinstance(build(name), Searcher)


@every_searcher
def test_the_same_seed_proposes_the_same(name: str) -> None:
    assert build(name).propose(5) == build(name).propose(5)


@every_searcher
def test_asking_one_by_one_gives_the_same_as_asking_at_once(name: str) -> None:
    searcher = build(name)
    one_by_one = [segment for _ in range(3) for segment in searcher.propose(1)]
    assert one_by_one == list(build(name).propose(3))


@every_searcher
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_the_number_that_runs_at_once_changes_nothing(name: str, at_once: int) -> None:
    assert list(run_search(build(name), at_once)) == list(run_search(build(name), 3))


@every_searcher
def test_trials_are_numbered_in_the_order_of_proposal(name: str) -> None:
    assert [segment.number for segment in run_search(build(name))] == list(range(6))


@every_searcher
@pytest.mark.parametrize("num_trials", [1, 2, 9, 10])
def test_no_more_trials_are_proposed_than_asked_for(name: str, num_trials: int) -> None:
    searcher = build(name, num_trials=num_trials)
    assert len(list(run_search(searcher))) == num_trials
    assert list(searcher.propose(10)) == []


@every_searcher
def test_nothing_is_proposed_when_nothing_is_wanted(name: str) -> None:
    searcher = build(name)
    assert list(searcher.propose(0)) == []
    assert list(searcher.propose(1)) == list(build(name).propose(1))


@every_searcher
@pytest.mark.parametrize("num_trials", [10, 11, 1000, None])
def test_a_finite_space_is_tried_once_and_then_the_search_ends(name: str, num_trials: int | None) -> None:
    segments = list(run_search(build(name, num_trials=num_trials)))
    assert sorted(repr(segment.config) for segment in segments) == sorted(map(repr, FINITE.configurations()))


@every_searcher
def test_a_space_without_domains_is_one_trial(name: str) -> None:
    segments = list(run_search(build(name, Space({"lr": 0.1}))))
    assert segments == [Segment(number=0, config={"lr": 0.1})]


@every_searcher
def test_failed_trials_do_not_hold_up_the_search(name: str) -> None:
    searcher = build(name)
    numbers = []
    while segments := searcher.propose(2):
        for segment in segments:
            numbers.append(segment.number)
            searcher.finish(segment.number, Status.FAILED)
    assert numbers == list(range(6))


@every_searcher
@pytest.mark.parametrize("num_known", [0, 1, 4, 6])
def test_a_resumed_search_goes_on_where_it_stopped(name: str, num_known: int) -> None:
    whole = list(run_search(build(name)))
    known = [as_record(segment, Status.COMPLETED) for segment in whole[:num_known]]
    assert list(run_search(build(name, known=known))) == whole[num_known:]


@every_searcher
def test_a_resumed_search_begins_with_what_was_under_way(name: str) -> None:
    whole = list(run_search(build(name)))
    statuses = (Status.COMPLETED, Status.RUNNING, Status.FAILED, Status.PAUSED)
    known = [as_record(segment, status) for segment, status in zip(whole, statuses, strict=False)]
    resumed = list(run_search(build(name, known=known)))
    assert resumed == [whole[1], whole[3], *whole[4:]]


@every_searcher
def test_a_resumed_search_can_be_given_more_trials(name: str) -> None:
    known = [as_record(segment, Status.COMPLETED) for segment in run_search(build(name, num_trials=4))]
    resumed = list(run_search(build(name, num_trials=8, known=known)))
    assert resumed == list(run_search(build(name, num_trials=8)))[4:]


@pytest.mark.parametrize("name", ["random", "grid"])
def test_searchers_without_early_stopping_let_trials_go_on(name: str) -> None:
    searcher = build(name)
    searcher.propose(1)
    assert searcher.observe(Report(number=0, epoch=1, metrics={"a": float("nan")})) is Decision.CONTINUE
