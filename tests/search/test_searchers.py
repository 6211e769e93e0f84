"""Conformance: every searcher keeps the contract of `Searcher`, on a simulated study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from optuna.samplers import TPESampler
from tests.search.harness import Curve, SearchLoop

from headwater.search import (
    ASHA,
    BOHB,
    PBT,
    SEARCHES,
    SHA,
    Build,
    Hyperband,
    MedianStopping,
    OptunaSearch,
    Problem,
    RungModel,
    Searcher,
    SyncBOHB,
)
from headwater.space import Config, Space, choice, loguniform, quniform, randint, uniform
from headwater.trials import Report, Status, TrialRecord

EAGER: Mapping[str, Build] = {
    "tpe, two at once": OptunaSearch("tpe", concurrency=2, num_startup=2),
    "cmaes, two at once": OptunaSearch("cmaes", concurrency=2),
    "qmc, two at once": OptunaSearch("qmc", concurrency=2),
    "a user's sampler": OptunaSearch(TPESampler(seed=1, n_startup_trials=2), concurrency=2),
    "halving of tpe": SHA(suggest="tpe", reduction=2),
    "hyperband, one at once": Hyperband(concurrency=1, reduction=2),
    "hyperband of tpe, two at once": Hyperband(suggest="tpe", concurrency=2),
    "asha, two at once": ASHA(concurrency=2, reduction=2),
    "asha, stopping": ASHA(promote=False, concurrency=3, reduction=2),
    "asha of tpe": ASHA(suggest="tpe", concurrency=2),
    "asha of a user's sampler": ASHA(suggest=TPESampler(seed=1, n_startup_trials=2), concurrency=3),
    "bohb, two at once": BOHB(concurrency=2, model=RungModel(min_results=2, random_fraction=0.1)),
    "sync-bohb, few results": SyncBOHB(model=RungModel(min_results=2, random_fraction=0.1)),
    "pbt, small": PBT(population=4, interval=1),
    "pbt of qmc": PBT(population=3, interval=2, suggest="qmc"),
    "median, two at once": MedianStopping(min_trials=2, concurrency=2),
}
"""Settings under which results matter early, so that small studies show it."""

BUILDS: Mapping[str, Build] = {**SEARCHES, **EAGER}
LEARNING = {name: build for name, build in BUILDS.items() if name not in ("random", "grid", "gp", "tpe", "cmaes")}
DROPPING = {name for name in BUILDS if name.startswith(("halving", "hyperband", "sync-bohb", "asha, stopping"))}
SLOW = {name for name in BUILDS if name.startswith(("tpe", "gp", "cmaes", "qmc", "a user's"))}

FINITE = Space({"depth": randint(1, 6), "act": choice(["relu", "gelu"]), "width": 8})
ENDLESS = Space({"lr": loguniform(1e-4, 1.0), "momentum": uniform(0.5, 0.999), "depth": choice([2, 4])})
CONDITIONAL = Space(
    {
        "kind": choice(["sgd", "adam"]),
        "lr": loguniform(1e-4, 1.0),
        "extra": lambda config: uniform(0.0, 0.9) if config["kind"] == "sgd" else choice([0.9, 0.99]),
        "decay": quniform(0.0, 0.3, 0.1),
    }
)

every_searcher = pytest.mark.parametrize("name", sorted(BUILDS))
every_learning_searcher = pytest.mark.parametrize("name", sorted(LEARNING))


def make_problem(name: str, space: Space | None = None, num_trials: int | None = 9, **settings: Any) -> Problem:
    space = space or (FINITE if name == "grid" else ENDLESS)
    return Problem(space=space, metric="a", mode="max", seed=7, num_trials=num_trials, max_epochs=9, **settings)


def climb(config: Config, epoch: int) -> float:
    """Every configuration learns, to a level and at a pace of its own, so that curves cross."""
    rng = Random(repr(config))
    return rng.random() * (1 - math.exp(-epoch * rng.uniform(0.1, 1.0)))


def stumble(config: Config, epoch: int) -> float:
    """Many configurations diverge or raise, sooner or later."""
    rng = Random(repr(config))
    fate, when = rng.choice([math.nan, math.inf, -math.inf, None, None, 0.0, 0.0, 0.0]), rng.randrange(5)
    if fate is None and epoch > when:
        raise RuntimeError("out of memory")
    return fate if fate and epoch > when else climb(config, epoch)


def run(
    name: str, space: Space | None = None, num_trials: int | None = 9, *, curve: Curve = climb, **machine: Any
) -> Sequence[TrialRecord]:
    study = SearchLoop(make_problem(name, space, num_trials), curve, num_epochs=9)
    return study.run(BUILDS[name], **machine)


@every_searcher
def test_a_searcher_satisfies_the_protocol(name: str) -> None:
    assert isinstance(BUILDS[name](make_problem(name)), Searcher)


@every_searcher
def test_the_same_seed_proposes_the_same(name: str) -> None:
    first, second = (BUILDS[name](make_problem(name)) for _ in range(2))
    assert first.propose(5) == second.propose(5)
    assert run(name) == run(name)


@pytest.mark.parametrize("name", sorted(name for name in BUILDS if name != "grid" and "user's" not in name))
def test_another_seed_proposes_something_else(name: str) -> None:
    problem = make_problem(name)
    assert BUILDS[name](problem).propose(1) != BUILDS[name](replace(problem, seed=8)).propose(1)


@every_searcher
def test_asking_one_by_one_gives_the_same_as_asking_at_once(name: str) -> None:
    one_by_one, at_once = (BUILDS[name](make_problem(name)) for _ in range(2))
    segments = [segment for _ in range(9) for segment in one_by_one.propose(1)]
    assert segments == list(at_once.propose(9))


@every_searcher
def test_nothing_is_proposed_when_nothing_is_wanted(name: str) -> None:
    searcher = BUILDS[name](make_problem(name))
    assert list(searcher.propose(0)) == []
    assert list(searcher.propose(1)) == list(BUILDS[name](make_problem(name)).propose(1))


@every_searcher
@pytest.mark.parametrize(("slots", "seed"), [(3, None), (2, 0), (5, 1), (100, 2)])
def test_neither_parallelism_nor_the_order_of_results_changes_the_record(
    name: str, slots: int, seed: int | None
) -> None:
    assert run(name, slots=slots, seed=seed) == run(name)


@pytest.mark.parametrize("name", ["asha of tpe", "bohb", "sync-bohb", "hyperband of tpe, two at once", "pbt", "median"])
def test_nor_does_it_where_models_have_many_results(name: str) -> None:
    problem = replace(make_problem(name, num_trials=60), max_epochs=27)
    first, second = (SearchLoop(problem, stumble, num_epochs=27) for _ in range(2))
    assert first.run(BUILDS[name], slots=11, seed=5) == second.run(BUILDS[name])


@every_searcher
@pytest.mark.parametrize("seed", range(2))
def test_storms_of_failures_and_nan_change_nothing_about_that(name: str, seed: int) -> None:
    assert run(name, curve=stumble, slots=5, seed=seed) == run(name, curve=stumble)


@every_searcher
@pytest.mark.parametrize("num_epochs", [1, 5, 30])
def test_the_training_function_may_end_before_or_after_the_limit(name: str, num_epochs: int) -> None:
    first, second = (SearchLoop(make_problem(name), climb, num_epochs=num_epochs) for _ in range(2))
    records = first.run(BUILDS[name], slots=4, seed=0)
    assert records == second.run(BUILDS[name])
    assert len(records) == 9
    assert all(record.epochs <= num_epochs for record in records)


@every_searcher
@pytest.mark.parametrize("num_trials", [1, 2, 10])
def test_no_more_trials_are_proposed_than_asked_for(name: str, num_trials: int) -> None:
    records = run(name, num_trials=num_trials, slots=100)
    assert [record.number for record in records] == list(range(num_trials))


@every_searcher
def test_no_trial_trains_longer_than_the_limit(name: str) -> None:
    study = SearchLoop(make_problem(name), climb, num_epochs=30)
    ends = {record.epochs for record in study.run(BUILDS[name]) if record.status is Status.PAUSED}
    assert all(end <= 9 for end in ends)


@every_searcher
@pytest.mark.parametrize("num_trials", [10, 1000, None])
def test_a_finite_space_is_tried_once_and_then_the_search_ends(name: str, num_trials: int | None) -> None:
    records = run(name, FINITE, num_trials)
    assert sorted(repr(record.config) for record in records) == sorted(map(repr, FINITE.configurations()))


@every_searcher
def test_a_space_without_domains_is_one_trial(name: str) -> None:
    records = run(name, Space({"lr": 0.1}))
    assert [record.config for record in records] == [{"lr": 0.1}]


@pytest.mark.parametrize("name", sorted(BUILDS.keys() - {"grid"}))
def test_conditions_are_resolved(name: str) -> None:
    records = run(name, CONDITIONAL, 12, slots=5, seed=0)
    assert all(CONDITIONAL.encode(record.config) for record in records)
    assert len({repr(record.config) for record in records}) == 12
    assert records == run(name, CONDITIONAL, 12)


@every_searcher
def test_a_study_in_which_every_trial_fails_ends(name: str) -> None:
    def fail(config: Config, epoch: int) -> float:
        raise RuntimeError("no such file")

    records = run(name, curve=fail, slots=4, seed=0)
    assert [record.status for record in records] == [Status.FAILED] * 9


@pytest.mark.parametrize("name", sorted(BUILDS.keys() - {"grid", "random"}))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_trial_survives_without_a_finite_metric(name: str, value: float) -> None:
    records = run(name, curve=lambda config, epoch: value, slots=4, seed=0)
    assert [(record.status, record.epochs) for record in records] == [(Status.STOPPED, 1)] * 9


@every_searcher
@pytest.mark.parametrize("curve", [climb, stumble])
def test_resuming_after_each_report_equals_no_interruption(name: str, curve: Curve) -> None:
    whole = run(name, curve=curve)
    num_reports = sum(len(record.history) for record in whole)
    for cut in range(0, num_reports + 1, 7 if name in SLOW else 1):
        study = SearchLoop(make_problem(name), curve, num_epochs=9)
        study.run(BUILDS[name], slots=3, seed=cut, max_reports=cut)
        assert study.run(BUILDS[name], slots=2, seed=cut + 1) == whole


@every_learning_searcher
def test_resuming_equals_no_interruption_when_a_finite_space_runs_out(name: str) -> None:
    whole = run(name, FINITE, None)
    num_reports = sum(len(record.history) for record in whole)
    for cut in range(3, num_reports, 25 if name in SLOW else 5):
        study = SearchLoop(make_problem(name, FINITE, None), climb, num_epochs=9)
        study.run(BUILDS[name], slots=3, seed=cut, max_reports=cut)
        assert study.run(BUILDS[name], slots=2, seed=cut + 1) == whole


@every_learning_searcher
def test_resuming_again_and_again_equals_no_interruption(name: str) -> None:
    study = SearchLoop(make_problem(name), stumble, num_epochs=9)
    for seed in range(12):
        records = study.run(BUILDS[name], slots=4, seed=seed, max_reports=7)
    assert records == run(name, curve=stumble)


@every_searcher
def test_a_resumed_search_begins_with_what_was_under_way(name: str) -> None:
    study = SearchLoop(make_problem(name), climb, num_epochs=9)
    records = study.run(BUILDS[name], slots=3, seed=2, max_reports=5)
    under_way = {record.number for record in records if record.status is Status.RUNNING}
    proposed = BUILDS[name](make_problem(name, known=tuple(records))).propose(100)
    assert under_way <= {segment.number for segment in proposed}
    assert under_way


@pytest.mark.parametrize("name", sorted(name for name in BUILDS if not name.startswith("pbt")))
def test_a_finished_study_can_be_given_more_trials(name: str) -> None:
    study = SearchLoop(make_problem(name), climb, num_epochs=9)
    study.run(BUILDS[name], num_trials=4, slots=3, seed=0)
    extended = study.run(BUILDS[name], num_trials=9, slots=3, seed=1)
    for record, at_once in zip(extended, run(name), strict=True):
        assert record.config == at_once.config
        if name not in DROPPING:  # what was dropped before does not come back
            assert record.history[: at_once.epochs] == at_once.history


@pytest.mark.parametrize("name", ["random", "grid"])
def test_searchers_without_early_stopping_train_to_the_end(name: str) -> None:
    assert {record.status for record in run(name)} == {Status.COMPLETED}


@pytest.mark.parametrize("name", ["tpe", "median", "pbt of qmc"])
def test_a_segment_that_ends_too_soon_is_proposed_again(name: str) -> None:
    searcher = BUILDS[name](make_problem(name))
    segment = searcher.propose(1)[0]
    searcher.observe(Report(number=0, epoch=1, metrics={"a": 0.5}))
    searcher.finish(0, Status.PAUSED)
    assert segment in searcher.propose(100)
