"""Successive halving and Hyperband against the pseudo-code of the papers."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from tests.search.harness import SearchLoop

from headwater.search import SHA, Hyperband, Problem, RandomSearch
from headwater.search.scheduled import ScheduledSearch
from headwater.space import Config, Space, uniform
from headwater.trials import Report, Status

SPACE = Space({"x": uniform(0, 1)})


def lose(config: Config, epoch: int) -> float:
    """A loss that falls at a pace of its own, so that the order of configurations changes with time."""
    rng = Random(repr(config))
    return rng.random() + rng.random() * math.exp(-epoch / rng.uniform(1, 30))


def make_problem(num_trials: int, max_epochs: int) -> Problem:
    return Problem(space=SPACE, metric="loss", mode="min", seed=1, num_trials=num_trials, max_epochs=max_epochs)


def run_hyperband_of_the_paper(max_epochs: int, eta: int, configs: list[Config]) -> list[int]:
    """Return how long each configuration trains: Algorithm 1 of Li et al., "Hyperband"."""
    epochs = [0] * len(configs)
    s_max = max(s for s in range(20) if eta**s <= max_epochs)
    first = 0
    for s in range(s_max, -1, -1):
        n = math.ceil((s_max + 1) * eta**s / (s + 1))
        r = max_epochs * eta**-s
        left = list(range(first, first + n))
        first += n
        for i in range(s + 1):
            n_i = math.floor(n * eta**-i)
            r_i = math.floor(r * eta**i + 1e-9)
            losses = {number: lose(configs[number], r_i) for number in left}
            for number in left:
                epochs[number] = r_i
            left = sorted(left, key=lambda number: losses[number])[: n_i // eta]
    return epochs


@pytest.mark.parametrize(("max_epochs", "eta"), [(81, 3), (27, 3), (16, 4), (50, 3), (20, 2)])
@pytest.mark.parametrize("concurrency", [None, 1, 2])
def test_hyperband_chooses_the_survivors_of_the_paper(max_epochs: int, eta: int, concurrency: int | None) -> None:
    s_max = max(s for s in range(20) if eta**s <= max_epochs)
    num_trials = sum(math.ceil((s_max + 1) * eta**s / (s + 1)) for s in range(s_max + 1))
    problem = make_problem(num_trials, max_epochs)
    configs = [segment.config for segment in RandomSearch(SPACE, 1, num_trials).propose(num_trials)]
    search = Hyperband(reduction=eta, concurrency=concurrency)
    records = SearchLoop(problem, lose, num_epochs=1000).run(search, slots=13, seed=0)
    assert [record.epochs for record in records] == run_hyperband_of_the_paper(max_epochs, eta, configs)


def test_rounds_of_hyperband_follow_one_another_and_the_last_bracket_is_cut() -> None:
    records = SearchLoop(make_problem(143 + 20, 81), lose, num_epochs=1000).run(Hyperband(), slots=50)
    assert Counter(record.epochs for record in records[143:]) == {1: 14, 3: 4, 9: 1, 81: 1}


def test_a_whole_round_of_brackets_is_proposed_at_once() -> None:
    searcher = Hyperband()(make_problem(1000, 81))
    assert Counter(segment.until for segment in searcher.propose(1000)) == {1: 81, 3: 34, 9: 15, 27: 8, 81: 5}


def test_halving_trains_as_many_trials_for_as_many_epochs_as_rubberband() -> None:
    records = SearchLoop(make_problem(32, 50), lose, num_epochs=50).run(SHA(), slots=7, seed=3)
    assert Counter(record.epochs for record in records) == {1: 22, 4: 7, 13: 2, 50: 1}
    at_each = {epoch: sum(record.epochs >= epoch for record in records) for epoch in (1, 4, 13, 50)}
    assert at_each == {1: 32, 4: 10, 13: 3, 50: 1}


def test_each_stage_of_halving_keeps_the_best() -> None:
    records = SearchLoop(make_problem(32, 50), lose, num_epochs=50).run(SHA())
    for until, after in ((1, 4), (4, 13), (13, 50)):
        there = [record for record in records if record.epochs >= until]
        kept = [record.number for record in records if record.epochs >= after]
        ranked = sorted(there, key=lambda record: record.history[until - 1].metrics["loss"])
        assert sorted(record.number for record in ranked[: len(kept)]) == kept


def test_equal_trials_are_kept_by_number() -> None:
    records = SearchLoop(make_problem(9, 9), lambda config, epoch: 1.0, num_epochs=9).run(SHA(), slots=9, seed=4)
    assert [record.epochs for record in records] == [9, 4, 4, 1, 1, 1, 1, 1, 1]


def test_sound_trials_fill_the_places_of_diverged_ones() -> None:
    def diverge(config: Config, epoch: int) -> float:
        return math.nan if config["x"] > 0.2 else config["x"]

    records = SearchLoop(make_problem(32, 50), diverge, num_epochs=50).run(SHA(), slots=32)
    sound = [record for record in records if record.config["x"] <= 0.2]
    assert 1 < len(sound) < 10
    assert all(record.epochs >= 4 for record in sound)
    assert max(record.epochs for record in sound) == 50


def test_a_trial_that_came_to_its_end_keeps_its_place_without_training() -> None:
    records = SearchLoop(make_problem(9, 50), lose, num_epochs=3).run(SHA(), slots=2)
    assert Counter((record.status, record.epochs) for record in records) == {
        (Status.STOPPED, 1): 6,
        (Status.COMPLETED, 3): 3,
    }


def test_losers_are_named_once_so_that_their_checkpoints_can_go() -> None:
    searcher = SHA()(make_problem(9, 9))
    assert isinstance(searcher, ScheduledSearch)
    for segment in searcher.propose(9):
        searcher.observe(Report(number=segment.number, epoch=1, metrics={"loss": float(segment.number)}))
        searcher.finish(segment.number, Status.PAUSED)
    assert list(searcher.take_dropped()) == [3, 4, 5, 6, 7, 8]
    assert list(searcher.take_dropped()) == []


def test_a_bracket_waits_for_the_one_before_the_last_however_fast_the_last_is() -> None:
    searcher = Hyperband(concurrency=2)(make_problem(100, 3))
    brackets: dict[int, list[int]] = {1: [], 3: []}
    for segment in searcher.propose(100):
        brackets[segment.until or 0].append(segment.number)
    assert brackets == {1: [0, 1, 2], 3: [3, 4]}
    for number in brackets[3]:
        for epoch in (1, 2, 3):
            searcher.observe(Report(number=number, epoch=epoch, metrics={"loss": 1.0}))
        searcher.finish(number, Status.PAUSED)
    assert [list(searcher.propose(100)) for _ in range(2)] == [[], []]


def test_a_finished_study_that_is_given_more_trials_fills_its_stages_from_those_that_are_left() -> None:
    study = SearchLoop(make_problem(9, 13), lose, num_epochs=13)
    study.run(SHA(), slots=4)
    records = study.run(SHA(), num_trials=27, slots=4)
    dropped = [record.number for record in records[:9] if record.epochs == 1]
    reached = Counter(record.epochs for record in records if record.number not in dropped)
    assert len(dropped) == 6
    assert reached[13] + reached[4] >= 9
    assert reached[13] >= 3
