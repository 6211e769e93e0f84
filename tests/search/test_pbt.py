from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from tests.search.harness import SearchLoop

from headwater.errors import StudyError
from headwater.search import PBT, Problem
from headwater.space import Config, Space, choice, loguniform, quniform, uniform
from headwater.trials import Report, Segment, Status, TrialRecord

SPACE = Space({"lr": loguniform(1e-4, 1.0), "dropout": quniform(0.0, 0.5, 0.05), "width": choice([8, 16])})
PROBLEM = Problem(space=SPACE, metric="loss", mode="min", seed=2, num_trials=20, max_epochs=10)


def lose(config: Config, epoch: int) -> float:
    return float(abs(math.log10(config["lr"]) + 2) + config["dropout"] / epoch)


def train_first_generation(search: PBT, problem: Problem, losses: list[float]) -> list[Segment]:
    searcher = search(problem)
    members = searcher.propose(100)
    assert [member.until for member in members] == [search.interval] * len(losses)
    for member, loss in zip(members, losses, strict=True):
        for epoch in range(1, (search.interval or 0) + 1):
            searcher.observe(Report(number=member.number, epoch=epoch, metrics={"loss": loss}))
        searcher.finish(member.number, Status.PAUSED if math.isfinite(loss) else Status.STOPPED)
    return list(searcher.propose(100))


def test_the_worst_are_replaced_by_copies_of_the_best_that_come_first() -> None:
    search = PBT(population=8, interval=2)
    generation = train_first_generation(search, PROBLEM, [5.0, 1.0, 7.0, 3.0, 4.0, 8.0, 2.0, 6.0])
    assert [segment.number for segment in generation] == [8, 9, 0, 1, 3, 4, 6, 7]
    assert [segment.parent in (1, 6) for segment in generation] == [True] * 2 + [False] * 6
    assert {segment.until for segment in generation} == {4}


def test_copies_differ_from_their_parents_in_fractions_only() -> None:
    search = PBT(population=8, interval=2, resample=0.0)
    start = search(PROBLEM).propose(8)
    for copy in train_first_generation(search, PROBLEM, [5.0, 1.0, 7.0, 3.0, 4.0, 8.0, 2.0, 6.0])[:2]:
        parent = start[copy.parent or 0].config
        ratio = copy.config["lr"] / parent["lr"]
        assert ratio in (pytest.approx(0.8), pytest.approx(1.2))
        assert copy.config["width"] == parent["width"]
        assert SPACE.encode(copy.config)


def test_named_keys_are_altered_instead() -> None:
    search = PBT(population=8, interval=2, mutate=("dropout",))
    start = search(PROBLEM).propose(8)
    for copy in train_first_generation(search, PROBLEM, [5.0, 1.0, 7.0, 3.0, 4.0, 8.0, 2.0, 6.0])[:2]:
        assert copy.config["lr"] == start[copy.parent or 0].config["lr"]
        assert copy.config["dropout"] != start[copy.parent or 0].config["dropout"]


def test_diverged_members_are_replaced_however_many_they_are() -> None:
    losses = [math.nan, math.nan, math.nan, 1.0, math.nan, math.nan]
    generation = train_first_generation(PBT(population=6, interval=1), PROBLEM, losses)
    assert [segment.number for segment in generation] == [6, 7, 8, 9, 10, 3]
    assert {segment.parent for segment in generation} == {3, None}


def test_copies_count_as_trials_and_members_go_on_when_there_are_enough() -> None:
    search = PBT(population=8, interval=2)
    losses = [5.0, 1.0, 7.0, 3.0, 4.0, 8.0, 2.0, 6.0]
    generation = train_first_generation(search, replace(PROBLEM, num_trials=9), losses)
    assert [segment.number for segment in generation] == [8, 0, 1, 3, 4, 5, 6, 7]


def test_copies_go_on_where_their_parents_stood() -> None:
    records = SearchLoop(PROBLEM, lose, num_epochs=10).run(PBT(population=8, interval=2), slots=4, seed=0)
    assert Counter(record.history[0].epoch for record in records) == {1: 8 + 4, 3: 2, 5: 2, 7: 2, 9: 2}


def test_another_population_begins_when_one_is_done() -> None:
    problem = replace(PROBLEM, num_trials=40)
    records = SearchLoop(problem, lose, num_epochs=10).run(PBT(population=8, interval=2), slots=4, seed=0)
    fresh = [record.number for record in records if record.history[0].epoch == 1]
    assert fresh == [*range(8), *range(16, 24), *range(32, 40)]
    assert len(records) == 40


def test_more_trials_for_a_finished_study_form_a_population_of_their_own() -> None:
    study = SearchLoop(PROBLEM, lose, num_epochs=10)
    first = study.run(PBT(population=8, interval=2), num_trials=8, slots=3)
    records = study.run(PBT(population=8, interval=2), num_trials=20, slots=3)
    assert records[:8] == first
    assert [record.history[0].epoch for record in records[8:16]] == [1] * 8
    assert all(record.history[0].epoch > 1 for record in records[16:])


def find_best(records: tuple[TrialRecord, ...]) -> float:
    return min(record.value("loss") for record in records)


def test_a_population_gets_better_than_its_first_members() -> None:
    problem = replace(PROBLEM, num_trials=60, max_epochs=40)
    records = SearchLoop(problem, lose, num_epochs=40).run(PBT(population=8, interval=2), slots=8)
    assert find_best(records) < find_best(records[:8])


def test_a_population_ends_with_its_training_function() -> None:
    problem = replace(PROBLEM, max_epochs=None, num_trials=16)
    records = SearchLoop(problem, lose, num_epochs=7).run(PBT(population=8, interval=2), slots=8)
    assert max(record.epochs for record in records) == 7


def test_a_key_that_the_space_lacks_is_refused() -> None:
    with pytest.raises(StudyError, match="PBT should alter 'momentum', which the space lacks"):
        PBT(mutate=("lr", "momentum"))(PROBLEM)


def test_more_than_half_cannot_be_replaced() -> None:
    with pytest.raises(StudyError, match=r"quantile is 0.6; it must be a finite number at least 0 and at most 0.5"):
        PBT(quantile=0.6)


def test_a_condition_is_resolved_anew_for_a_copy() -> None:
    space = Space(
        {
            "lr": uniform(0.0, 1.0),
            "warmup": lambda config: uniform(0.0, 0.1) if config["lr"] < 0.5 else uniform(0.2, 0.3),
        }
    )
    problem = replace(PROBLEM, space=space, num_trials=60)
    records = SearchLoop(problem, lambda config, epoch: config["lr"], num_epochs=10).run(
        PBT(population=8, interval=1, mutate=("lr",)), slots=8
    )
    assert all(space.encode(record.config) for record in records)
