"""What searchers say of their stages beforehand, against what they then ask for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.search.harness import SearchLoop
from tests.search.test_halving import lose, make_problem

from headwater.search import SHA, Build, Hyperband, Problem, Searcher, Stage, SyncBOHB, build_searcher, list_brackets
from headwater.search.replicas import Replicated
from headwater.space import Space, choice, uniform

FINITE = Space({"x": choice([1, 2, 3]), "y": choice([1, 2])})


@pytest.mark.parametrize(("num_trials", "max_epochs"), [(32, 50), (7, 9), (100, 27), (1, 5), (150, 81)])
@pytest.mark.parametrize(
    "search", ["random", SHA(), SHA(reduction=2, min_epochs=4), Hyperband(), Hyperband(concurrency=1), SyncBOHB()]
)
def test_trials_train_as_long_as_the_stages_say(search: str | Build, num_trials: int, max_epochs: int) -> None:
    problem = make_problem(num_trials, max_epochs)

    def build(given: Problem) -> Searcher:
        return build_searcher(search, given)

    brackets = list_brackets(build_searcher(search, problem))
    assert brackets is not None
    records = SearchLoop(problem, lose, num_epochs=max_epochs).run(build, slots=5)
    expected = sorted(epochs for stages in brackets for epochs in _list_epochs(stages, max_epochs))
    assert sorted(record.epochs for record in records) == expected


def test_a_grid_is_one_stage_of_all_its_configurations() -> None:
    problem = Problem(space=FINITE, metric="loss", mode="min", max_epochs=4)
    assert list_brackets(build_searcher("grid", problem)) == [[Stage(num_trials=6, until=None)]]


def test_replicas_are_trials_of_every_stage() -> None:
    searcher = build_searcher(SHA(), make_problem(9, 9))
    assert list_brackets(Replicated(searcher, 2)) == [
        [Stage(num_trials=18, until=1), Stage(num_trials=6, until=4), Stage(num_trials=2, until=9)]
    ]


@pytest.mark.parametrize("search", ["asha", "bohb", "pbt", "median", "tpe"])
def test_who_decides_on_the_way_has_no_stages(search: str) -> None:
    assert list_brackets(build_searcher(search, make_problem(8, 9))) is None


def test_no_end_of_trials_has_no_stages() -> None:
    problem = Problem(space=Space({"x": uniform(0, 1)}), metric="loss", mode="min", max_epochs=4)
    assert list_brackets(build_searcher("random", problem)) is None
    assert list_brackets(build_searcher("hyperband", problem)) is None


def _list_epochs(stages: Sequence[Stage], max_epochs: int) -> list[int]:
    """Return how long each trial of a bracket trains in the end."""
    counts = [stage.num_trials for stage in stages]
    ends = [max_epochs if stage.until is None else stage.until for stage in stages]
    dropped = [count - after for count, after in zip(counts, [*counts[1:], 0], strict=True)]
    return [end for end, count in zip(ends, dropped, strict=True) for _ in range(count)]
